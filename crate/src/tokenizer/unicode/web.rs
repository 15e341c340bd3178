//! Tables of the browser.

use js_sys::{JsString, RegExp};

thread_local! {
    static LETTER: RegExp = RegExp::new(r"\p{L}", "u");
    static NUMBER: RegExp = RegExp::new(r"\p{N}", "u");
    static MARK_DIGIT_OR_CONNECTOR: RegExp = RegExp::new(r"[\p{M}\p{Nd}\p{Pc}]", "u");
}

fn is(class: &'static std::thread::LocalKey<RegExp>, character: char) -> bool {
    let mut bytes = [0; 4];
    let text = character.encode_utf8(&mut bytes);
    class.with(|class| class.test(text))
}

pub(super) fn nfc(text: &str) -> String {
    JsString::from(text).normalize("NFC").into()
}

pub(super) fn is_letter(character: char) -> bool {
    is(&LETTER, character)
}

pub(super) fn is_number(character: char) -> bool {
    is(&NUMBER, character)
}

pub(super) fn is_mark_digit_or_connector(character: char) -> bool {
    is(&MARK_DIGIT_OR_CONNECTOR, character)
}
