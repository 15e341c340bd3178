//! What Unicode says of characters. A browser knows it, and the tables are too large to be downloaded once more: they would be a tenth of
//! the module that a page fetches.
//!
//! Natively it is Unicode 16, as in the reference's library. Browsers have versions of their own; they differ in characters that were
//! not assigned before, which no vocabulary has as a whole.

#[cfg(not(target_family = "wasm"))]
mod native;
#[cfg(target_family = "wasm")]
mod web;

#[cfg(not(target_family = "wasm"))]
use native as tables;
#[cfg(target_family = "wasm")]
use web as tables;

/// The text in normalization form C.
pub(super) fn nfc(text: &str) -> String {
    if text.is_ascii() {
        return text.to_owned();
    }
    tables::nfc(text)
}

/// `\p{L}`
pub(super) fn is_letter(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_alphabetic();
    }
    tables::is_letter(character)
}

/// `\p{N}`
pub(super) fn is_number(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_digit();
    }
    tables::is_number(character)
}

/// `[\p{M}\p{Nd}\p{Pc}]`: what a word of a regular expression has beside letters.
pub(super) fn is_mark_digit_or_connector(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_digit() || character == '_';
    }
    tables::is_mark_digit_or_connector(character)
}
