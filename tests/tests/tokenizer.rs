//! The tokenizer against transformers' CLIPTokenizer. The fixtures are made by `golden/tokenizer.py`.
#![cfg(not(target_family = "wasm"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use latent_canvas::Error;
use latent_canvas::tokenizer::{ClipTokenizer, Encoding};
use serde::Deserialize;
use serde_json::{Value, json};

macro_rules! golden {
    ($path:literal) => {
        include_str!(concat!("../golden/tokenizer/", $path))
    };
}

#[derive(Deserialize)]
struct Fixture {
    pad_token_id: u32,
    model_max_length: usize,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Variant {
    name: String,
    tokenizer_config: Value,
    special_tokens_map: Option<Value>,
    pad_token_id: u32,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    /// Truncated, with start and end, without padding.
    ids: Vec<u32>,
    token_count: usize,
    cut: Option<String>,
}

impl Case {
    fn check(&self, tokenizer: &ClipTokenizer, pad_token_id: u32, what: &str) {
        let length = tokenizer.model_max_length();
        let mut input_ids = self.ids.clone();
        input_ids.resize(length, pad_token_id);
        let expected = Encoding {
            input_ids,
            token_count: self.token_count,
            limit: length - 2,
            truncated_text: self.cut.clone(),
        };
        assert_eq!(
            tokenizer.encode(&self.text),
            expected,
            "{what}: {:?}",
            self.text
        );
    }
}

fn clip_with(config: &str, map: Option<&str>) -> ClipTokenizer {
    let (vocab, merges) = (golden!("clip/vocab.json"), golden!("clip/merges.txt"));
    ClipTokenizer::from_vocab_and_merges(vocab, merges, config, map).unwrap()
}

fn clip() -> ClipTokenizer {
    clip_with(
        golden!("clip/tokenizer_config.json"),
        Some(golden!("clip/special_tokens_map.json")),
    )
}

fn emoji_with(config: &str, map: Option<&str>) -> Result<ClipTokenizer, Error> {
    let (vocab, merges) = (golden!("emoji/vocab.json"), golden!("emoji/merges.txt"));
    ClipTokenizer::from_vocab_and_merges(vocab, merges, config, map)
}

fn emoji() -> ClipTokenizer {
    emoji_with(
        golden!("emoji/tokenizer_config.json"),
        Some(golden!("emoji/special_tokens_map.json")),
    )
    .unwrap()
}

fn check_all(tokenizer: &ClipTokenizer, cases: &str, what: &str) {
    let fixture: Fixture = serde_json::from_str(cases).unwrap();
    assert!(fixture.cases.len() > 207, "the seven and 200 more");
    assert_eq!(tokenizer.model_max_length(), fixture.model_max_length);
    for case in &fixture.cases {
        case.check(tokenizer, fixture.pad_token_id, what);
    }
}

/// The prompt's own ids: between start and end.
fn ids(tokenizer: &ClipTokenizer, text: &str) -> Vec<u32> {
    let encoding = tokenizer.encode(text);
    let count = encoding.token_count.min(encoding.limit);
    encoding.input_ids[1..=count].to_vec()
}

#[test]
fn clip_vocabulary_equals_the_reference() {
    check_all(&clip(), golden!("clip/cases.json"), "clip");
}

#[test]
fn bundled_vocabulary_equals_the_reference() {
    check_all(&emoji(), golden!("emoji/cases.json"), "emoji");
}

#[test]
fn tokenizer_json_equals_the_reference() {
    let config = golden!("emoji/tokenizer_config.json");
    let tokenizer =
        ClipTokenizer::from_tokenizer_json(golden!("emoji/tokenizer.json"), Some(config)).unwrap();
    check_all(&tokenizer, golden!("emoji/cases.json"), "tokenizer.json");
}

/// Exports before tokenizers 0.20 write a merge as one text; without a config the length comes from `truncation`.
#[test]
fn older_tokenizer_json_alone() {
    let mut document: Value = serde_json::from_str(golden!("emoji/tokenizer.json")).unwrap();
    for merge in document["model"]["merges"].as_array_mut().unwrap() {
        let pair = merge.as_array().unwrap();
        let line = [pair[0].as_str().unwrap(), pair[1].as_str().unwrap()].join(" ");
        *merge = Value::String(line);
    }
    document["truncation"] =
        json!({"direction": "Right", "max_length": 77, "strategy": "LongestFirst", "stride": 0});
    let tokenizer = ClipTokenizer::from_tokenizer_json(&document.to_string(), None).unwrap();
    check_all(
        &tokenizer,
        golden!("emoji/cases.json"),
        "older tokenizer.json",
    );

    document["normalizer"]["normalizers"] = json!([{"type": "NFC"}]);
    let cased = ClipTokenizer::from_tokenizer_json(&document.to_string(), None).unwrap();
    assert_ne!(ids(&cased, "CAT"), ids(&cased, "cat"));
}

#[test]
fn special_tokens_come_from_the_files() {
    let variants: Vec<Variant> = serde_json::from_str(golden!("variants.json")).unwrap();
    assert_eq!(variants.len(), 10);
    for variant in variants {
        let map = variant.special_tokens_map.map(|map| map.to_string());
        let tokenizer = emoji_with(&variant.tokenizer_config.to_string(), map.as_deref()).unwrap();
        for case in &variant.cases {
            case.check(&tokenizer, variant.pad_token_id, &variant.name);
        }
    }
}

/// transformers 5 ignores `do_lower_case: false`; a model that was trained with capitals is better served by its own file.
#[test]
fn capitals_are_kept_where_the_config_says_so() {
    let tokenizer =
        emoji_with(r#"{"model_max_length": 77, "do_lower_case": false}"#, None).unwrap();
    let vocab: Value = serde_json::from_str(golden!("emoji/vocab.json")).unwrap();
    assert_eq!(
        Value::from(ids(&tokenizer, "A a")),
        json!([vocab["A</w>"], vocab["a</w>"]])
    );
}

#[test]
fn t01_apostrophes() {
    let clip = clip();
    let expected = [49406, 592, 1535, 1200, 1700, 589, 49407];
    assert_eq!(
        clip.encode("You should've done this").input_ids[..7],
        expected
    );
    assert_eq!(
        ids(&clip, "you're, don't, her's"),
        [592, 982, 267, 847, 713, 267, 899, 568]
    );
}

#[test]
fn t03_word_ends_and_single_digits() {
    let clip = clip();
    let fox = [49406, 320, 1125, 539, 320, 3240, 49407];
    assert_eq!(clip.encode("a photo of a fox").input_ids[..7], fox);
    assert_eq!(ids(&clip, "1233"), [272, 273, 274, 274]);
    assert_eq!(ids(&clip, "12 33"), [272, 273, 274, 274]);
    assert_eq!(ids(&clip, "cat on the pavement"), [2368, 525, 518, 27669]);
    assert_eq!(ids(&clip, "hello world"), [3306, 1002]);
}

/// SD 1.x pads with the end token. SD 2.x and SDXL's second encoder pad with "!", and as in diffusers a "!" of the prompt then is
/// the padding token as well (the project's pictures are compared with diffusers').
#[test]
fn t04_padding_comes_from_the_files() {
    let text = "an astronaut riding a horse on mars";
    let prompt = [49406, 550, 18376, 6765, 320, 4558, 525, 7496, 49407];
    let first = clip();
    let second = clip_with(
        r#"{"model_max_length": 77, "pad_token": "<|endoftext|>"}"#,
        Some(r#"{"pad_token": "!"}"#),
    );
    for (tokenizer, pad) in [(&first, 49407), (&second, 0)] {
        let input_ids = tokenizer.encode(text).input_ids;
        assert_eq!(input_ids.len(), 77);
        assert_eq!(input_ids[..9], prompt);
        assert!(input_ids[9..].iter().all(|&id| id == pad));
    }
    assert_eq!(ids(&first, "! !! !!!"), [256, 748, 995]);
    assert_eq!(ids(&second, "! !! !!!"), [0; 6]);
}

#[test]
fn t06_long_prompts() {
    let clip = clip();
    let letters: String = ('a'..='z')
        .chain('a'..='p')
        .flat_map(|c| [c, ','])
        .collect();
    let encoding = clip.encode(&letters);
    assert_eq!((encoding.token_count, encoding.limit), (84, 75));
    assert_eq!(encoding.truncated_text.unwrap(), ", m , n , o , p ,");

    let encoding = clip.encode(&"apple, realistic, detailed, ".repeat(16));
    assert_eq!(encoding.token_count, 96);
    assert_eq!(encoding.input_ids.len(), 77);
    assert_eq!(
        encoding.input_ids[76], 49407,
        "truncation keeps the end token"
    );
    assert!(encoding.truncated_text.is_some());

    let question = clip.encode("is it over?");
    let end = question.token_count + 1;
    assert_eq!(question.input_ids[end], 49407);
    assert_eq!(question.input_ids[end - 1], 286, "the question mark alone");
    assert_eq!(question.truncated_text, None);
    let exactly = clip.encode(&"a ".repeat(75));
    assert_eq!((exactly.token_count, exactly.truncated_text), (75, None));
}

/// Prompt weights are not offered: brackets are text, balanced or not.
#[test]
fn t07_brackets_are_text() {
    let clip = clip();
    let bracket = |text: &str| ids(&clip, text);
    assert_eq!(bracket("cat)"), [bracket("cat"), bracket(")")].concat());
    assert_eq!(
        bracket("x ((y:2) z"),
        ["x", "((", "y", ":", "2", ")", "z"].map(bracket).concat()
    );
    assert_eq!(
        bracket("(big [red] dog)"),
        ["(", "big", "[", "red", "]", "dog", ")"]
            .map(bracket)
            .concat()
    );
    for text in [
        "(((owl)))",
        r"\(plain\)",
        "(one)(two)",
        "[[[{{((",
        "ereshkigal (ereshkigal (fate))",
    ] {
        assert!(clip.encode(text).token_count > 0, "{text}");
    }
}

/// An empty negative prompt is start, end and padding, not zeros.
#[test]
fn t08_empty_prompt() {
    let encoding = clip().encode("");
    let mut expected = vec![49407; 77];
    expected[0] = 49406;
    assert_eq!(encoding.input_ids, expected);
    assert_eq!(encoding.token_count, 0);
    assert_eq!(encoding, clip().encode(" \n\u{3000}"));
}

/// One word of a megabyte, and a megabyte of words, end in seconds even in a build without optimisation.
#[test]
fn a_megabyte_ends() {
    let clip = clip();
    let start = std::time::Instant::now();
    for text in [
        "abcdefghij".repeat(100_000),
        "a".repeat(1_000_000),
        "!?".repeat(500_000),
        "a red fox, ".repeat(90_000),
        "<|endoftext|>".repeat(80_000),
        "<|endoftext".repeat(90_000),
        "\u{301}".repeat(500_000),
        " ".repeat(1_000_000),
    ] {
        let encoding = clip.encode(&text);
        assert_eq!(encoding.input_ids.len(), 77);
        assert_eq!(
            encoding.truncated_text.is_some(),
            encoding.token_count > encoding.limit
        );
    }
    let seconds = start.elapsed().as_secs_f64();
    assert!(seconds < 60.0, "{seconds} s");
}

#[test]
fn damaged_files_are_named() {
    let vocab = golden!("emoji/vocab.json");
    let merges = golden!("emoji/merges.txt");
    let config = golden!("emoji/tokenizer_config.json");
    let refused = |vocab: &str, merges: &str, config: &str, map: Option<&str>| {
        match ClipTokenizer::from_vocab_and_merges(vocab, merges, config, map) {
            Err(Error::Config { file, why }) => format!("{file}: {why}"),
            other => panic!("{other:?}"),
        }
    };
    let message = refused("<html>", merges, config, None);
    assert!(message.starts_with("tokenizer/vocab.json: "), "{message}");
    let message = refused(vocab, "<!doctype html>\n", config, None);
    assert!(message.starts_with("tokenizer/merges.txt: "), "{message}");
    let message = refused(vocab, "#version: 0.2\nzq xj\n", config, None);
    assert!(message.contains("'zq xj'"), "{message}");
    let message = refused(vocab, merges, "[", None);
    assert!(message.contains("tokenizer_config.json"), "{message}");
    let message = refused(vocab, merges, config, Some("{"));
    assert!(message.contains("special_tokens_map.json"), "{message}");
    for (config, word) in [
        (json!({}), "model_max_length"),
        (json!({"model_max_length": 2}), "model_max_length"),
        (json!({"model_max_length": 1e30}), "model_max_length"),
        (
            json!({"model_max_length": 77, "pad_token": "<pad>"}),
            "pad_token",
        ),
        (json!({"model_max_length": 77, "bos_token": 5}), "bos_token"),
        (
            json!({"model_max_length": 77, "padding_side": "left"}),
            "padding_side",
        ),
        (
            json!({"model_max_length": 77, "truncation_side": "left"}),
            "truncation_side",
        ),
        (
            json!({"model_max_length": 77, "added_tokens_decoder": {"x": {"content": "!"}}}),
            "'x'",
        ),
    ] {
        let message = refused(vocab, merges, &config.to_string(), None);
        assert!(
            message.starts_with("tokenizer/tokenizer_config.json: "),
            "{message}"
        );
        assert!(message.contains(word), "{message}");
    }
    let wordpiece = r#"{"model": {"type": "WordPiece", "vocab": {}, "merges": []}}"#;
    let error = ClipTokenizer::from_tokenizer_json(wordpiece, Some(config)).unwrap_err();
    assert_eq!(error.code(), "config");
}
