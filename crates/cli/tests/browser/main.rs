//! The page in a browser: what its script does, and that a page of every kind fits a desk and a
//! phone, light and dark. Skipped without Chromium.

mod buttons;
mod chromium;
#[allow(dead_code, reason = "every test binary uses its own part of it")]
#[path = "../program/sim/elf.rs"]
mod elf;
mod pages;
mod reading;
mod recorded;
#[path = "../../../report/tests/samples/mod.rs"]
mod samples;
#[path = "../trace/mod.rs"]
mod trace;

use chromium::{Browser, DESK, PHONE, Screen};

/// A page of every kind, on a desk and on a phone, light and dark.
#[test]
fn pages_of_every_kind_fit_every_screen() {
    let Some(browser) = Browser::start() else { return };
    for (kind, page) in pages::all() {
        let mut papers = Vec::new();
        for screen in [DESK, PHONE].into_iter().flat_map(light_and_dark) {
            browser.open(&page, screen);
            let at = format!("{kind} at {screen:?}");
            let complaints = browser.complaints();
            assert!(complaints.is_empty(), "{at}: {complaints:?}");
            // Only an element that scrolls in its own box may be wider than the screen.
            let wide = browser.number("document.documentElement.scrollWidth - innerWidth");
            assert!(wide <= 0.0, "{at}: {wide} px too wide: {}", widest(&browser));
            let blank = browser.number(BLANK);
            assert!(blank == 0.0, "{at}: {blank} plots are blank");
            assert!(browser.number("document.querySelectorAll('h1').length") >= 1.0, "{at}");
            papers.push(browser.text("getComputedStyle(document.body).backgroundColor"));
        }
        assert!(papers[0] != papers[1] && papers[..2] == papers[2..], "{kind}: {papers:?}");
    }
}

/// Number of plots with nothing drawn.
const BLANK: &str = "[...document.querySelectorAll('.plot')].filter((plot) => {
    const canvas = plot.querySelector('canvas');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    return !data.some((value) => value > 0);
}).length";

fn light_and_dark(screen: Screen) -> [Screen; 2] {
    [screen, Screen { dark: true, ..screen }]
}

/// The element that reaches furthest to the right on a page that is too wide, except elements that
/// scroll in their own box.
fn widest(browser: &Browser) -> String {
    browser.text(
        "(() => { const scrolls = (each) => each !== document.body && each.closest('main *')
            && getComputedStyle(each).overflowX !== 'visible';
        const inBox = (each) => { for (let p = each.parentElement; p; p = p.parentElement) if (scrolls(p)) return true; return false; };
        const all = [...document.querySelectorAll('body *')].filter((each) => !inBox(each));
        const right = (each) => each.getBoundingClientRect().right;
        const worst = all.reduce((a, b) => (right(a) >= right(b) ? a : b));
        return `${worst.outerHTML.slice(0, 200)} ends at ${right(worst)}`; })()",
    )
}
