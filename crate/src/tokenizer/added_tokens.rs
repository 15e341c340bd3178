//! Special tokens written literally in a text, cut out before anything else happens to it.
//!
//! Follows `added_vocabulary.rs` of the tokenizers library: tokens that are not "normalized" are looked for in the text as typed, the
//! others in the normalized text (so `<|STARTOFTEXT|>` can match too); at each place the longest token wins.

use std::collections::HashMap;

use super::{files::AddedToken, unicode::is_mark_digit_or_connector};

/// A stretch of text, or a special token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Part<'text> {
    Text(&'text str),
    Token(u32),
}

#[derive(Debug, Clone)]
struct Pattern {
    id: u32,
    /// As it must stand in the text; for a normalized token this is its normalized form.
    text: String,
    token: AddedToken,
}

/// The special tokens of one tokenizer.
#[derive(Debug, Clone, Default)]
pub(super) struct AddedTokens {
    raw: Vec<Pattern>,
    normalized: Vec<Pattern>,
}

impl AddedTokens {
    /// A token that the vocabulary lacks gets the next free id; of two with the same content the later one counts.
    pub(super) fn new(
        tokens: Vec<AddedToken>,
        vocab: &HashMap<String, u32>,
        normalize: impl Fn(&str) -> String,
    ) -> Self {
        let mut ids: HashMap<String, u32> = HashMap::new();
        let mut patterns: Vec<Pattern> = Vec::new();
        let mut next_id = vocab.len() as u32;
        for token in tokens {
            if token.content.is_empty() {
                continue;
            }
            let known = vocab.get(&token.content).or(ids.get(&token.content));
            let id = known.copied().unwrap_or_else(|| {
                let id = next_id;
                next_id += 1;
                id
            });
            ids.insert(token.content.clone(), id);
            let text = if token.normalized {
                normalize(&token.content)
            } else {
                token.content.clone()
            };
            patterns.retain(|pattern| pattern.id != id);
            if !text.is_empty() {
                patterns.push(Pattern { id, text, token });
            }
        }
        let (normalized, raw) = patterns
            .into_iter()
            .partition(|pattern| pattern.token.normalized);
        Self { raw, normalized }
    }

    /// The parts of a text as typed.
    pub(super) fn split_raw<'text>(&self, text: &'text str) -> Vec<Part<'text>> {
        split(text, &self.raw)
    }

    /// The parts of a normalized text.
    pub(super) fn split_normalized<'text>(&self, text: &'text str) -> Vec<Part<'text>> {
        split(text, &self.normalized)
    }

    /// The largest id of a special token.
    pub(super) fn largest_id(&self) -> u32 {
        let patterns = self.raw.iter().chain(&self.normalized);
        patterns.map(|pattern| pattern.id).max().unwrap_or_default()
    }

    /// How a special token is written.
    pub(super) fn content(&self, id: u32) -> Option<&str> {
        self.raw
            .iter()
            .chain(&self.normalized)
            .find(|pattern| pattern.id == id)
            .map(|pattern| pattern.token.content.as_str())
    }
}

fn split<'text>(text: &'text str, patterns: &[Pattern]) -> Vec<Part<'text>> {
    let mut parts = Vec::new();
    let mut done = 0;
    let mut searched = 0;
    while let Some((mut start, pattern)) = find(text, searched, patterns) {
        let mut end = start + pattern.text.len();
        searched = end;
        let token = &pattern.token;
        if token.single_word
            && (text[..start].chars().next_back().is_some_and(is_word)
                || text[end..].chars().next().is_some_and(is_word))
        {
            continue;
        }
        if token.lstrip {
            start = text[..start].trim_end().len().max(done);
        }
        if token.rstrip {
            end = text.len() - text[end..].trim_start().len();
        }
        if done < start {
            parts.push(Part::Text(&text[done..start]));
        }
        parts.push(Part::Token(pattern.id));
        done = end;
    }
    if done < text.len() {
        parts.push(Part::Text(&text[done..]));
    }
    parts
}

/// The leftmost place at or after `from` where a pattern stands, and the longest one there.
fn find<'a>(text: &str, from: usize, patterns: &'a [Pattern]) -> Option<(usize, &'a Pattern)> {
    let tail = text.as_bytes().get(from..)?;
    (0..tail.len()).find_map(|offset| {
        patterns
            .iter()
            .filter(|pattern| tail[offset..].starts_with(pattern.text.as_bytes()))
            .max_by_key(|pattern| pattern.text.len())
            .map(|pattern| (from + offset, pattern))
    })
}

/// `\w` of regular expressions.
fn is_word(character: char) -> bool {
    character.is_alphabetic()
        || matches!(character, '\u{200c}' | '\u{200d}')
        || is_mark_digit_or_connector(character)
}
