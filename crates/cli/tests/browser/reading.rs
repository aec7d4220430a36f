//! Reading values from a plot: with the pointer, with the keyboard, series by series, and in a
//! part of the plot.

use crate::chromium::{Browser, DESK, PHONE, Screen};
use crate::pages;

/// The plots of a page of transfers: lines over the size.
const OVER: &str = ".plot .u-over";
const PLACE: &str = "document.querySelector('.legend .place').textContent";
const SAID: &str = "document.querySelector('.figure output').textContent";

fn transfers(screen: Screen) -> Option<Browser> {
    let browser = Browser::start()?;
    browser.open(&haul_report::html(&pages::transfers()), screen);
    Some(browser)
}

/// The values in the legend, by series.
fn values(browser: &Browser) -> Vec<(String, String)> {
    let found = browser.run(
        "[...document.querySelector('.legend').querySelectorAll('.item')]
            .map((item) => [item.querySelector('button').textContent, item.querySelector('.value').textContent])",
    );
    serde_json::from_value(found).unwrap()
}

#[test]
fn pointer_shows_values_and_covers_no_plot() {
    for screen in [DESK, PHONE] {
        let Some(browser) = transfers(screen) else { return };
        let idle = browser.text(PLACE);
        assert!(idle.starts_with("Point at the plot"), "{idle}");
        assert!(values(&browser).iter().all(|(_, value)| value.is_empty()));
        let height = browser.number("document.documentElement.scrollHeight");
        let (x, y) = browser.middle(OVER);
        browser.point(x, y);
        browser.wait(&format!("{PLACE} === '256 KiB'"));
        let shown = values(&browser);
        assert!(shown.iter().all(|(_, value)| value.ends_with(" GB/s")), "{shown:?}");
        // The plot stays on top at every point, and its position does not change.
        browser.holds(
            "(() => { const over = document.querySelector('.plot .u-over');
            const { left, top, width, height } = over.getBoundingClientRect();
            return [0.1, 0.3, 0.5, 0.7, 0.9].every((x) => [0.1, 0.5, 0.9].every((y) =>
                over.contains(document.elementFromPoint(left + x * width, top + y * height)))); })()",
        );
        assert_eq!(browser.number("document.documentElement.scrollHeight"), height, "{screen:?}");
        browser.point(1.0, 1.0);
        browser.wait(&format!("{PLACE}.startsWith('Point at')"));
        assert_eq!(browser.complaints(), [""; 0]);
    }
}

#[test]
fn plot_draws_five_series_and_click_adds_another() {
    let Some(browser) = transfers(DESK) else { return };
    let names = |browser: &Browser| -> Vec<String> {
        values(browser).into_iter().map(|(name, _)| name).collect()
    };
    let first = names(&browser);
    assert_eq!((first.len(), first[0].as_str()), (5, "haul:auto"), "{first:?}");
    let drawn = "document.querySelector('.plot canvas').toDataURL()";
    let before = browser.text(drawn);
    browser.click(".legend .more button");
    assert_eq!(names(&browser).len(), 6);
    assert_ne!(browser.text(drawn), before);
    browser.holds("document.activeElement.getAttribute('aria-pressed') === 'true'");
    // The added series has the focus, wherever it is among the others.
    browser.click(".legend button:focus");
    assert_eq!(names(&browser), first);
    assert_eq!(browser.text(drawn), before);
}

#[test]
fn keyboard_announces_plot_values() {
    let Some(browser) = transfers(DESK) else { return };
    browser.run("document.querySelector('.plot').focus()");
    for (key, place) in [
        ("ArrowRight", "64 B"),
        ("ArrowRight", "1 KiB"),
        ("ArrowLeft", "64 B"),
        ("End", "256 MiB"),
        ("Home", "64 B"),
    ] {
        browser.key(key);
        browser.wait(&format!("{SAID}.startsWith('{place}: haul:auto ')"));
        browser.holds(&format!("{PLACE} === '{place}'"));
    }
    browser.key("Escape");
    browser.wait(&format!("{PLACE}.startsWith('Point at')"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn plot_zooms_to_a_part() {
    let Some(browser) = transfers(DESK) else { return };
    let whole = "document.querySelector('.controls .whole') === null";
    browser.holds(whole);
    let (x, y) = browser.middle(OVER);
    let width = browser.number("document.querySelector('.plot .u-over').clientWidth");
    browser.drag((x - width * 0.2, y), (x + width * 0.2, y));
    browser.wait(&format!("!({whole})"));
    // The keyboard reaches the visible part.
    browser.run("document.querySelector('.plot').focus()");
    browser.key("Home");
    browser.wait(&format!("{SAID}.startsWith('16 KiB: ')"));
    browser.key("End");
    browser.wait(&format!("{SAID}.startsWith('4 MiB: ')"));
    browser.click(".controls .whole");
    browser.wait(whole);
    browser.key("Home");
    browser.wait(&format!("{SAID}.startsWith('64 B: ')"));
    browser.key("+");
    browser.wait(&format!("!({whole})"));
    browser.key("Escape");
    browser.wait(whole);
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn cursor_marks_same_size_in_all_plots() {
    let Some(browser) = Browser::start() else { return };
    browser.open(&haul_report::html(&pages::survey()), DESK);
    // Copies by size, and what tuning changed.
    let of = |name: &str| {
        format!("[...document.querySelectorAll('.figure')].find((it) => it.id.endsWith('{name}'))")
    };
    let (sizes, tuned) = (of("copy-size"), of("copy-tune"));
    browser.run(&format!("{sizes}.querySelector('.plot').focus()"));
    for _ in 0..10 {
        browser.key("ArrowRight");
    }
    let place = |figure: &str| format!("{figure}.querySelector('.place').textContent");
    browser.wait(&format!("{} === '32 KiB'", place(&sizes)));
    browser.wait(&format!("{} === '33068 B'", place(&tuned)));
    // A plot that has no value there shows no cursor.
    browser.key("End");
    browser.wait(&format!("{}.startsWith('Point at')", place(&tuned)));
    // A row of a plot of rows.
    let rows = of("copy-distribution");
    browser.run(&format!("{rows}.querySelector('.plot').focus()"));
    browser.key("ArrowDown");
    browser.key("ArrowDown");
    browser.wait(&format!("{} === 'small-keys'", place(&rows)));
    browser.wait(&format!("!{rows}.querySelector('.plot .row').hidden"));
    browser.holds(&format!(
        "/95%: .* to .*floor ±/.test({rows}.querySelector('.remark').textContent)"
    ));
    assert_eq!(browser.complaints(), [""; 0]);
}
