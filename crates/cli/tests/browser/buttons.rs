//! What the page's buttons do: the theme, copies of commands, columns and order of a table.

use crate::chromium::{Browser, DESK, PHONE};
use crate::pages;

fn survey() -> Option<Browser> {
    let browser = Browser::start()?;
    browser.open(&haul_report::html(&pages::survey()), DESK);
    Some(browser)
}

#[test]
fn theme_button_cycles_theme_and_plots() {
    let Some(browser) = survey() else { return };
    let paper = "getComputedStyle(document.body).backgroundColor";
    let drawn = "document.querySelector('.plot canvas').toDataURL()";
    let label = "document.querySelector('#theme').textContent";
    let light = (browser.text(paper), browser.text(drawn));
    assert_eq!(browser.text(label), "Theme: system");
    browser.click("#theme");
    browser.wait(&format!("{label} === 'Theme: dark'"));
    let dark = (browser.text(paper), browser.text(drawn));
    assert!(dark.0 != light.0 && dark.1 != light.1, "{}", dark.0);
    browser.click("#theme");
    browser.wait(&format!("{label} === 'Theme: light'"));
    assert_eq!((browser.text(paper), browser.text(drawn)), light);
    browser.click("#theme");
    browser.wait(&format!("{label} === 'Theme: system'"));
    browser.holds("document.documentElement.dataset.theme === undefined");
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn click_copies_or_selects_command() {
    let Some(browser) = survey() else { return };
    let button = "document.querySelector('.copy')";
    let command = browser.text(&format!("{button}.previousElementSibling.textContent"));
    assert!(command.contains(' '), "{command}");
    // A browser without a window may refuse the clipboard: the test simulates both answers.
    let clipboard = |answer: &str| {
        browser.run(&format!(
            "Object.defineProperty(navigator, 'clipboard', {{ configurable: true, value:
                {{ writeText: (text) => {{ window.copied = text; return {answer}; }} }} }}), true"
        ));
    };
    clipboard("Promise.resolve()");
    browser.click(".copy");
    browser.wait(&format!("{button}.textContent === 'copied'"));
    assert_eq!(browser.text("window.copied"), command);
    browser.wait(&format!("{button}.textContent === 'copy'"));
    clipboard("Promise.reject(new Error('refused'))");
    browser.click(".copy");
    browser.wait("String(getSelection()) !== ''");
    assert_eq!(browser.text("String(getSelection())"), command);
    browser.holds(&format!("{button}.textContent === 'copy'"));
    assert_eq!(browser.complaints(), [""; 0]);
}

#[test]
fn table_shows_ten_columns_then_all_and_sorts_by_each() {
    for screen in [DESK, PHONE] {
        let Some(browser) = Browser::start() else { return };
        browser.open(&haul_report::html(&pages::survey()), screen);
        browser
            .run("document.querySelector('.figure .columns').closest('details').open = true, true");
        let table = "document.querySelector('.figure .columns').nextElementSibling
            .querySelector('table')";
        let seen = || {
            browser.number(&format!(
                "[...{table}.tHead.rows[0].cells].filter((cell) => cell.offsetWidth > 0).length"
            ))
        };
        let all = browser.number(&format!("{table}.tHead.rows[0].cells.length"));
        let pressed = "document.querySelector('.columns').getAttribute('aria-pressed')";
        assert!(seen() <= 10.0 && all > 10.0, "{} of {all}", seen());
        assert_eq!(browser.text(pressed), "false");
        browser.click(".figure .columns");
        assert_eq!((seen(), browser.text(pressed).as_str()), (all, "true"));
        browser.click(".figure .columns");
        assert!(seen() <= 10.0, "{}", seen());
        let median = "[...document.querySelector('.figure table').tHead.rows[0].cells]
            .findIndex((cell) => cell.textContent === 'median')";
        let values = format!(
            "[...document.querySelector('.figure table').tBodies[0].rows]
                .map((row) => Number(row.cells[{median}].dataset.v))"
        );
        let sorted = |order: &str| {
            browser.holds(&format!(
                "{values}.every((value, at, all) => at === 0 || all[at - 1] {order} value)"
            ));
        };
        let header = format!("document.querySelector('.figure table th:nth-child({}) button')", {
            browser.number(median) + 1.0
        });
        browser.run(&format!("{header}.click(), true"));
        sorted("<=");
        browser.run(&format!("{header}.click(), true"));
        sorted(">=");
        assert_eq!(browser.complaints(), [""; 0]);
    }
}
