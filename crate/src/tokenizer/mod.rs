//! CLIP's byte-pair encoding: a prompt becomes the token ids that the text encoder was trained on.
//!
//! The reference is `CLIPTokenizer` of transformers 5 (with the tokenizers library 0.23 below it); the fixtures in
//! `tests/golden/tokenizer` hold this module equal to it. Ids, padding, the longest prompt and the special tokens come from the files
//! beside the model's weights, never from the model's name.
//!
//! text -> special tokens cut out (`added_tokens`) -> NFC, white space, lower case, then CLIP's words (`split`)
//! -> bytes and merges (`bpe`) -> start, at most `limit` tokens, end, padding.

mod added_tokens;
mod bpe;
mod files;
mod split;
mod unicode;

use added_tokens::{AddedTokens, Part};
use bpe::Bpe;
use files::{Files, Settings};

use crate::Result;

/// What a prompt became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encoding {
    /// Exactly [`ClipTokenizer::model_max_length`] ids: start, the prompt's tokens, end, padding.
    pub input_ids: Vec<u32>,
    /// How many tokens the whole prompt has, without start and end, before anything was cut.
    pub token_count: usize,
    /// How many tokens fit, without start and end (75 for every Stable Diffusion model).
    pub limit: usize,
    /// The end of the prompt that did not fit, as the tokenizer reads it (lower case, one space between words), for the notice to the
    /// user; `None` when everything fits. It is what diffusers prints in its warning.
    pub truncated_text: Option<String>,
}

/// The tokenizer of one text encoder.
#[derive(Debug, Clone)]
pub struct ClipTokenizer {
    bpe: Bpe,
    added_tokens: AddedTokens,
    settings: Settings,
}

impl ClipTokenizer {
    /// From the classic files of a `tokenizer` folder: `vocab.json`, `merges.txt`, `tokenizer_config.json` and, where the folder has
    /// it, `special_tokens_map.json`.
    ///
    /// # Errors
    /// [`crate::Error::Config`] names the file that is not valid JSON, lacks a token, or asks for what is not supported.
    pub fn from_vocab_and_merges(
        vocab_json: &str,
        merges_txt: &str,
        tokenizer_config_json: &str,
        special_tokens_map_json: Option<&str>,
    ) -> Result<Self> {
        Self::from_files(Files::from_vocab_and_merges(
            vocab_json,
            merges_txt,
            tokenizer_config_json,
            special_tokens_map_json,
        )?)
    }

    /// From the single `tokenizer.json` that newer exports write, with `tokenizer_config.json` where there is one. Without it the
    /// longest prompt must be in `tokenizer.json` itself (`truncation.max_length`).
    ///
    /// # Errors
    /// [`crate::Error::Config`] as for [`Self::from_vocab_and_merges`].
    pub fn from_tokenizer_json(
        tokenizer_json: &str,
        tokenizer_config_json: Option<&str>,
    ) -> Result<Self> {
        Self::from_files(Files::from_tokenizer_json(
            tokenizer_json,
            tokenizer_config_json,
        )?)
    }

    fn from_files(files: Files) -> Result<Self> {
        let settings = files.settings()?;
        let added_tokens = AddedTokens::new(files.added_tokens, &files.vocab, |content| {
            split::normalize(content, settings.lower_case)
        });
        let bpe = Bpe::new(
            files.vocab,
            &files.merges,
            settings.unk_token_id,
            files.merges_file,
        )?;
        Ok(Self {
            bpe,
            added_tokens,
            settings,
        })
    }

    /// The length of every [`Encoding::input_ids`], from the files (77 for every Stable Diffusion model).
    #[must_use]
    pub fn model_max_length(&self) -> usize {
        self.settings.model_max_length
    }

    /// The largest id that [`Self::encode`] can give: the text encoder must have an embedding for it.
    #[must_use]
    pub fn largest_id(&self) -> u32 {
        self.bpe.largest_id().max(self.added_tokens.largest_id())
    }

    /// The ids of one prompt: `tokenizer(text, padding="max_length", truncation=True)` of the reference.
    ///
    /// Any text is valid, the empty one too. Brackets, weights and other prompt syntax are plain characters. A special token that
    /// stands in the text literally becomes its id. The time is proportional to the text's length (n log n within one word).
    #[must_use]
    pub fn encode(&self, text: &str) -> Encoding {
        let mut tokens = Vec::new();
        for part in self.added_tokens.split_raw(text) {
            match part {
                Part::Token(id) => tokens.push(id),
                Part::Text(text) => {
                    let text = split::normalize(text, self.settings.lower_case);
                    self.encode_normalized(&text, &mut tokens);
                }
            }
        }
        let limit = self.settings.model_max_length - 2;
        let kept = tokens.len().min(limit);
        let mut input_ids = Vec::with_capacity(self.settings.model_max_length);
        input_ids.push(self.settings.bos_token_id);
        input_ids.extend_from_slice(&tokens[..kept]);
        input_ids.push(self.settings.eos_token_id);
        input_ids.resize(self.settings.model_max_length, self.settings.pad_token_id);
        Encoding {
            input_ids,
            token_count: tokens.len(),
            limit,
            truncated_text: (kept < tokens.len()).then(|| self.decode(&tokens[kept..])),
        }
    }

    fn encode_normalized(&self, text: &str, tokens: &mut Vec<u32>) {
        for part in self.added_tokens.split_normalized(text) {
            match part {
                Part::Token(id) => tokens.push(id),
                Part::Text(text) => {
                    for word in split::words(text) {
                        self.bpe.encode_word(word.as_bytes(), tokens);
                    }
                }
            }
        }
    }

    /// The text of some ids, words set apart by single spaces. A character that the cut went through shows as U+FFFD.
    fn decode(&self, ids: &[u32]) -> String {
        let mut bytes = Vec::new();
        for &id in ids {
            match self.added_tokens.content(id) {
                Some(content) => bytes.extend(bpe::token_bytes(content)),
                None => bytes.extend(self.bpe.bytes_of(id)),
            }
        }
        let text = String::from_utf8_lossy(&bytes).replace(bpe::END_OF_WORD, " ");
        // Python's str.strip, which the reference ends with, takes the four separators of ASCII for white space as well
        text.trim_matches(|c: char| c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c))
            .to_owned()
    }
}
