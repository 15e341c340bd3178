//! Reading the tokenizer's files, with the precedence that transformers gives them.

use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{Error, Result};

const CONFIG_FILE: &str = "tokenizer/tokenizer_config.json";
const MAP_FILE: &str = "tokenizer/special_tokens_map.json";
const VOCAB_FILE: &str = "tokenizer/vocab.json";
const MERGES_FILE: &str = "tokenizer/merges.txt";
const TOKENIZER_FILE: &str = "tokenizer/tokenizer.json";

/// Published models have a handful; one with many textual inversions has hundreds.
const MAX_ADDED_TOKENS: usize = 10_000;

/// The named special tokens in the order in which the reference adds them, with what its `CLIPTokenizer` takes where a file is silent.
const NAMED_TOKENS: [(&str, Option<&str>); 7] = [
    ("bos_token", Some("<|startoftext|>")),
    ("eos_token", Some("<|endoftext|>")),
    ("unk_token", Some("<|endoftext|>")),
    ("sep_token", None),
    ("pad_token", Some("<|endoftext|>")),
    ("cls_token", None),
    ("mask_token", None),
];

/// A token that is cut out of the text before anything else (`AddedToken` of the tokenizers library).
#[derive(Debug, Clone)]
pub(super) struct AddedToken {
    pub(super) content: String,
    pub(super) single_word: bool,
    pub(super) lstrip: bool,
    pub(super) rstrip: bool,
    /// Looked for in the normalized text, not in the text as typed.
    pub(super) normalized: bool,
}

/// A special token as a file writes it: its text, or all its properties.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum WrittenToken {
    Text(String),
    Properties {
        content: String,
        #[serde(default)]
        single_word: bool,
        #[serde(default)]
        lstrip: bool,
        #[serde(default)]
        rstrip: bool,
        #[serde(default = "yes")]
        normalized: bool,
    },
}

fn yes() -> bool {
    true
}

impl WrittenToken {
    fn content(&self) -> &str {
        match self {
            Self::Text(content) | Self::Properties { content, .. } => content,
        }
    }
}

impl From<WrittenToken> for AddedToken {
    fn from(written: WrittenToken) -> Self {
        match written {
            // the reference makes a special token of a bare text, and those are not normalized
            WrittenToken::Text(content) => Self {
                content,
                single_word: false,
                lstrip: false,
                rstrip: false,
                normalized: false,
            },
            WrittenToken::Properties {
                content,
                single_word,
                lstrip,
                rstrip,
                normalized,
            } => Self {
                content,
                single_word,
                lstrip,
                rstrip,
                normalized,
            },
        }
    }
}

/// `tokenizer_config.json`, as far as it matters here. The named tokens stay in `rest`.
#[derive(Debug, Default, Deserialize)]
struct Config {
    model_max_length: Option<Value>,
    do_lower_case: Option<bool>,
    padding_side: Option<String>,
    truncation_side: Option<String>,
    added_tokens_decoder: Option<BTreeMap<String, WrittenToken>>,
    #[serde(flatten)]
    rest: HashMap<String, Value>,
}

/// `tokenizer.json`, as far as it matters here.
#[derive(Debug, Deserialize)]
struct TokenizerJson {
    model: Model,
    #[serde(default)]
    added_tokens: Vec<NumberedToken>,
    normalizer: Option<Value>,
    truncation: Option<Truncation>,
}

#[derive(Debug, Deserialize)]
struct Model {
    #[serde(rename = "type")]
    kind: Option<String>,
    end_of_word_suffix: Option<String>,
    vocab: HashMap<String, u32>,
    merges: Vec<WrittenMerge>,
}

#[derive(Debug, Deserialize)]
struct NumberedToken {
    id: u32,
    #[serde(flatten)]
    token: WrittenToken,
}

#[derive(Debug, Deserialize)]
struct Truncation {
    max_length: u64,
}

/// A merge: `"a b"` until tokenizers 0.19, `["a", "b"]` since.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum WrittenMerge {
    Line(String),
    Pair(String, String),
}

/// Everything that the files say, before it is looked up in the vocabulary.
#[derive(Debug)]
pub(super) struct Files {
    pub(super) vocab: HashMap<String, u32>,
    pub(super) merges: Vec<(String, String)>,
    /// Which file the merges came from, for messages.
    pub(super) merges_file: &'static str,
    /// In the order in which the reference adds them; of two with the same content the later one counts.
    pub(super) added_tokens: Vec<AddedToken>,
    named: HashMap<&'static str, String>,
    model_max_length: Option<u64>,
    lower_case: bool,
}

/// The ids and sizes of one tokenizer.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) bos_token_id: u32,
    pub(super) eos_token_id: u32,
    pub(super) pad_token_id: u32,
    pub(super) unk_token_id: u32,
    pub(super) model_max_length: usize,
    /// Where a file says that the model tells capitals apart, it is believed; transformers 5 lowers in any case.
    pub(super) lower_case: bool,
}

impl Files {
    pub(super) fn from_vocab_and_merges(
        vocab_json: &str,
        merges_txt: &str,
        tokenizer_config_json: &str,
        special_tokens_map_json: Option<&str>,
    ) -> Result<Self> {
        let mut config: Config = parse(CONFIG_FILE, tokenizer_config_json)?;
        if let (Some(map), None) = (special_tokens_map_json, &config.added_tokens_decoder) {
            config
                .rest
                .extend(parse::<HashMap<String, Value>>(MAP_FILE, map)?);
        }
        let merges = merges_txt
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with("#version"))
            .map(|line| split_merge(MERGES_FILE, line))
            .collect::<Result<_>>()?;
        Self::new(
            parse(VOCAB_FILE, vocab_json)?,
            (MERGES_FILE, merges),
            config,
            Vec::new(),
        )
    }

    pub(super) fn from_tokenizer_json(
        tokenizer_json: &str,
        tokenizer_config_json: Option<&str>,
    ) -> Result<Self> {
        let tokenizer: TokenizerJson = parse(TOKENIZER_FILE, tokenizer_json)?;
        let mut config: Config = match tokenizer_config_json {
            Some(text) => parse(CONFIG_FILE, text)?,
            None => Config::default(),
        };
        let model = tokenizer.model;
        if model.kind.as_deref().is_some_and(|kind| kind != "BPE")
            || model.end_of_word_suffix.as_deref() != Some(super::bpe::END_OF_WORD)
        {
            return Err(Error::config(
                TOKENIZER_FILE,
                "this is not CLIP's kind of tokenizer (type BPE, end_of_word_suffix \"</w>\"); choose a Stable Diffusion model",
            ));
        }
        if config.model_max_length.is_none() {
            config.model_max_length = tokenizer.truncation.map(|t| t.max_length.into());
        }
        if config.do_lower_case.is_none() {
            config.do_lower_case = tokenizer
                .normalizer
                .map(|normalizer| has_step(&normalizer, "Lowercase"));
        }
        let mut added = tokenizer.added_tokens;
        added.sort_by_key(|token| token.id);
        let merges = model
            .merges
            .into_iter()
            .map(|merge| match merge {
                WrittenMerge::Line(line) => split_merge(TOKENIZER_FILE, &line),
                WrittenMerge::Pair(left, right) => Ok((left, right)),
            })
            .collect::<Result<_>>()?;
        Self::new(
            model.vocab,
            (TOKENIZER_FILE, merges),
            config,
            added.into_iter().map(|token| token.token).collect(),
        )
    }

    fn new(
        vocab: HashMap<String, u32>,
        (merges_file, merges): (&'static str, Vec<(String, String)>),
        config: Config,
        numbered: Vec<WrittenToken>,
    ) -> Result<Self> {
        for (name, side) in [
            ("padding_side", &config.padding_side),
            ("truncation_side", &config.truncation_side),
        ] {
            if side.as_deref().is_some_and(|side| side != "right") {
                return Err(Error::config(
                    CONFIG_FILE,
                    format!("{name} must be \"right\", as in every Stable Diffusion model"),
                ));
            }
        }
        let numbered = match config.added_tokens_decoder {
            Some(decoder) => in_order_of_id(decoder)?,
            None => numbered,
        };
        let mut named = HashMap::new();
        let mut more = Vec::new();
        for (name, default) in NAMED_TOKENS {
            let written = match config.rest.get(name) {
                Some(Value::Null) | None => default.map(|text| WrittenToken::Text(text.to_owned())),
                Some(value) => Some(token(name, value)?),
            };
            if let Some(written) = written {
                named.insert(name, written.content().to_owned());
                more.push(written);
            }
        }
        for name in ["additional_special_tokens", "extra_special_tokens"] {
            if let Some(Value::Array(values)) = config.rest.get(name) {
                for value in values {
                    more.push(token(name, value)?);
                }
            }
        }
        // each of them is looked for at every place of a prompt
        if numbered.len() + more.len() > MAX_ADDED_TOKENS {
            let why = format!("there are more than {MAX_ADDED_TOKENS} added tokens");
            return Err(Error::config(CONFIG_FILE, why));
        }
        // a token with an id already has its properties, and a name only points to it
        more.retain(|token| !numbered.iter().any(|n| n.content() == token.content()));
        Ok(Self {
            vocab,
            merges,
            merges_file,
            added_tokens: numbered
                .into_iter()
                .chain(more)
                .map(AddedToken::from)
                .collect(),
            named,
            model_max_length: config.model_max_length.and_then(|length| length.as_u64()),
            lower_case: config.do_lower_case.unwrap_or(true),
        })
    }

    /// Looks the named tokens up in the vocabulary.
    pub(super) fn settings(&self) -> Result<Settings> {
        let id = |name: &str| {
            let content = self.named.get(name).map_or("", String::as_str);
            self.vocab.get(content).copied().ok_or_else(|| {
                Error::config(
                    CONFIG_FILE,
                    format!("{name} is '{content}', which the vocabulary lacks"),
                )
            })
        };
        // start and end take two places; the bound only keeps a damaged file from asking for gigabytes
        let model_max_length = match self.model_max_length {
            Some(length @ 3..=65_536) => length as usize,
            _ => {
                return Err(Error::config(
                    CONFIG_FILE,
                    "model_max_length must be a whole number from 3 to 65536 (77 in every Stable Diffusion model)",
                ));
            }
        };
        Ok(Settings {
            bos_token_id: id("bos_token")?,
            eos_token_id: id("eos_token")?,
            pad_token_id: id("pad_token")?,
            unk_token_id: id("unk_token")?,
            model_max_length,
            lower_case: self.lower_case,
        })
    }
}

fn parse<T: DeserializeOwned>(file: &str, text: &str) -> Result<T> {
    serde_json::from_str(text).map_err(|error| Error::config(file, error.to_string()))
}

fn token(name: &str, value: &Value) -> Result<WrittenToken> {
    WrittenToken::deserialize(value).map_err(|_| {
        Error::config(
            CONFIG_FILE,
            format!("{name} must be a text or an object with `content`"),
        )
    })
}

fn split_merge(file: &str, line: &str) -> Result<(String, String)> {
    match line.split_once(' ') {
        Some((left, right)) if !left.is_empty() && !right.is_empty() && !right.contains(' ') => {
            Ok((left.to_owned(), right.to_owned()))
        }
        _ => Err(Error::config(
            file,
            format!("'{line}' is not a merge (two tokens with one space between them)"),
        )),
    }
}

fn in_order_of_id(decoder: BTreeMap<String, WrittenToken>) -> Result<Vec<WrittenToken>> {
    let mut tokens = decoder
        .into_iter()
        .map(|(id, token)| match id.parse::<u32>() {
            Ok(id) => Ok((id, token)),
            Err(_) => Err(Error::config(
                CONFIG_FILE,
                format!("added_tokens_decoder has the key '{id}', which is no token id"),
            )),
        })
        .collect::<Result<Vec<_>>>()?;
    tokens.sort_by_key(|(id, _)| *id);
    Ok(tokens.into_iter().map(|(_, token)| token).collect())
}

/// Whether a normalizer is, or as a sequence contains, a step of this type.
fn has_step(normalizer: &Value, kind: &str) -> bool {
    normalizer.get("type").and_then(Value::as_str) == Some(kind)
        || normalizer
            .get("normalizers")
            .and_then(Value::as_array)
            .is_some_and(|steps| steps.iter().any(|step| has_step(step, kind)))
}
