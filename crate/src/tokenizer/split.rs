//! Normalization and CLIP's cut into words, both as the reference's tokenizers library does them.

use super::unicode::{is_letter, is_number, nfc};

/// NFC, then every run of white space as one space, then lower case.
///
/// Lower case goes character by character, as in the reference: a final sigma stays the ordinary one (Python's and Rust's
/// `lower` of a whole string would change it), and U+0130 becomes `i` with a dot above.
pub(super) fn normalize(text: &str, lower_case: bool) -> String {
    let mut normalized = String::with_capacity(text.len());
    let mut after_space = false;
    for character in nfc(text).chars() {
        let space = character.is_whitespace();
        if space {
            if !after_space {
                normalized.push(' ');
            }
        } else if lower_case {
            normalized.extend(character.to_lowercase());
        } else {
            normalized.push(character);
        }
        after_space = space;
    }
    normalized
}

/// The words of a normalized text. White space belongs to no word.
///
/// `<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+`
///
/// A second expression then cuts each word once more (GPT-2's, in the reference's byte-level step). It changes only the two literal
/// alternatives, into `<|`, the name and `|>`. They stand in the text when the special tokens are looked for as typed, and the user
/// typed capitals.
pub(super) fn words(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    let mut literal = 0;
    std::iter::from_fn(move || {
        rest = rest.trim_start();
        if literal == 0 {
            let found = LITERALS.iter().find(|l| rest.starts_with(**l));
            literal = found.map_or(0, |l| l.len());
        }
        let end = if literal == 0 { rest.len() } else { literal };
        let length = word_length(&rest[..end])?;
        literal = literal.saturating_sub(length);
        let (word, after) = rest.split_at(length);
        rest = after;
        Some(word)
    })
}

const LITERALS: [&str; 2] = ["<|startoftext|>", "<|endoftext|>"];
const CONTRACTIONS: [&str; 7] = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d"];

/// Bytes of the word at the start of `text`, which does not start with white space.
fn word_length(text: &str) -> Option<usize> {
    let first = text.chars().next()?;
    if let Some(contraction) = CONTRACTIONS.iter().find(|c| text.starts_with(**c)) {
        return Some(contraction.len());
    }
    let class = Class::of(first);
    if class == Class::Number {
        return Some(first.len_utf8());
    }
    Some(
        text.char_indices()
            .find(|&(_, character)| Class::of(character) != class)
            .map_or(text.len(), |(index, _)| index),
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Space,
    Letter,
    Number,
    Other,
}

impl Class {
    fn of(character: char) -> Self {
        if character.is_whitespace() {
            return Self::Space;
        }
        if is_letter(character) {
            Self::Letter
        } else if is_number(character) {
            Self::Number
        } else {
            Self::Other
        }
    }
}
