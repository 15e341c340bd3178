//! Byte-level byte-pair encoding of one word, with CLIP's `</w>` on the last symbol.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::{Error, Result};

/// What the vocabulary writes after the last symbol of a word.
pub(super) const END_OF_WORD: &str = "</w>";

#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    id: u32,
}

/// Vocabulary and merges, by id.
#[derive(Debug, Clone)]
pub(super) struct Bpe {
    tokens: HashMap<u32, String>,
    merges: HashMap<(u32, u32), Merge>,
    inner: [u32; 256],
    last: [u32; 256],
}

/// One symbol of a word in the making. Symbols form a list within a vector, so that a merge moves nothing.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    id: u32,
    previous: Option<usize>,
    next: Option<usize>,
    alive: bool,
}

impl Bpe {
    /// `merges` in order of rank. A byte that the vocabulary lacks becomes `unk_token_id`.
    pub(super) fn new(
        vocab: HashMap<String, u32>,
        merges: &[(String, String)],
        unk_token_id: u32,
        merges_file: &str,
    ) -> Result<Self> {
        let id = |token: &str| vocab.get(token).copied();
        let mut by_pair = HashMap::with_capacity(merges.len());
        for (rank, (left, right)) in merges.iter().enumerate() {
            let merged = format!("{left}{right}");
            let ids = (id(left), id(right), id(&merged));
            let (Some(left), Some(right), Some(id)) = ids else {
                return Err(Error::config(
                    merges_file,
                    format!("the merge '{left} {right}' needs a token that the vocabulary lacks"),
                ));
            };
            let rank = rank as u32;
            by_pair.insert((left, right), Merge { rank, id });
        }
        let mut inner = [unk_token_id; 256];
        let mut last = [unk_token_id; 256];
        for byte in 0..=u8::MAX {
            let mut token = String::from(byte_to_char(byte));
            inner[usize::from(byte)] = id(&token).unwrap_or(unk_token_id);
            token.push_str(END_OF_WORD);
            last[usize::from(byte)] = id(&token).unwrap_or(unk_token_id);
        }
        Ok(Self {
            tokens: vocab.into_iter().map(|(token, id)| (id, token)).collect(),
            merges: by_pair,
            inner,
            last,
        })
    }

    /// Appends the ids of one word: the applicable merge of lowest rank first, the leftmost of equals, until none applies.
    ///
    /// Every merge takes one symbol away and adds at most two entries to the queue, so this ends, in n log n steps.
    pub(super) fn encode_word(&self, word: &[u8], output: &mut Vec<u32>) {
        let Some((&last, inner)) = word.split_last() else {
            return;
        };
        let mut symbols: Vec<Symbol> = (0..word.len())
            .map(|index| Symbol {
                id: inner
                    .get(index)
                    .map_or(self.last[usize::from(last)], |&byte| {
                        self.inner[usize::from(byte)]
                    }),
                previous: index.checked_sub(1),
                next: (index + 1 < word.len()).then_some(index + 1),
                alive: true,
            })
            .collect();
        let mut queue: BinaryHeap<_> = symbols
            .windows(2)
            .enumerate()
            .filter_map(|(left, pair)| {
                let merge = self.merges.get(&(pair[0].id, pair[1].id))?;
                Some(Reverse((merge.rank, left, merge.id)))
            })
            .collect();

        while let Some(Reverse((_, left, id))) = queue.pop() {
            let Some(right) = symbols[left].next.filter(|_| symbols[left].alive) else {
                continue;
            };
            // an entry is stale when one of its two symbols has been merged since
            match self.merges.get(&(symbols[left].id, symbols[right].id)) {
                Some(merge) if merge.id == id => {}
                _ => continue,
            }
            symbols[right].alive = false;
            symbols[left].id = id;
            symbols[left].next = symbols[right].next;
            if let Some(next) = symbols[left].next {
                symbols[next].previous = Some(left);
            }
            for (first, second) in [
                (symbols[left].previous, Some(left)),
                (Some(left), symbols[left].next),
            ] {
                if let (Some(first), Some(second)) = (first, second)
                    && let Some(merge) = self.merges.get(&(symbols[first].id, symbols[second].id))
                {
                    queue.push(Reverse((merge.rank, first, merge.id)));
                }
            }
        }
        output.extend(symbols.iter().filter(|s| s.alive).map(|s| s.id));
    }

    /// The largest id of the vocabulary.
    pub(super) fn largest_id(&self) -> u32 {
        self.tokens.keys().copied().max().unwrap_or_default()
    }

    /// The bytes of one token as the decoder joins them; nothing for an id outside the vocabulary.
    pub(super) fn bytes_of(&self, id: u32) -> Vec<u8> {
        self.tokens
            .get(&id)
            .map_or_else(Vec::new, |token| token_bytes(token))
    }
}

/// The bytes that a token's characters stand for; a token with any other character stands for itself.
pub(super) fn token_bytes(token: &str) -> Vec<u8> {
    token
        .chars()
        .map(char_to_byte)
        .collect::<Option<Vec<u8>>>()
        .unwrap_or_else(|| token.as_bytes().to_vec())
}

/// GPT-2's alphabet: bytes that print stand for themselves, the others for the characters from U+0100 on, in order.
fn byte_to_char(byte: u8) -> char {
    let code = u32::from(byte);
    let code = match byte {
        0x00..=0x20 => 0x100 + code,
        0x7f..=0xa0 => 0x121 + (code - 0x7f),
        0xad => 0x143,
        _ => code,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

fn char_to_byte(character: char) -> Option<u8> {
    let code = u32::from(character);
    let byte = match code {
        0x21..=0x7e | 0xa1..=0xac | 0xae..=0xff => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7f,
        0x143 => 0xad,
        _ => return None,
    };
    u8::try_from(byte).ok()
}
