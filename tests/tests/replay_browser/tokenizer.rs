//! The tokenizer with the browser's own Unicode tables, on the same texts as natively. The reference has Unicode 16; what was assigned later
//! (random code points of the fixture hit ideographs of Unicode 17) is a letter in a newer browser and nothing in the reference.

use latent_canvas::tokenizer::ClipTokenizer;
use serde::Deserialize;
use wasm_bindgen_test::wasm_bindgen_test;

macro_rules! golden {
    ($file:literal) => {
        include_str!(concat!("../../golden/tokenizer/emoji/", $file))
    };
}

#[derive(Deserialize)]
struct Fixture {
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    text: String,
    ids: Vec<u32>,
    token_count: usize,
    cut: Option<String>,
}

#[wasm_bindgen_test]
fn texts_have_the_tokens_of_transformers() {
    let tokenizer = ClipTokenizer::from_vocab_and_merges(
        golden!("vocab.json"),
        golden!("merges.txt"),
        golden!("tokenizer_config.json"),
        Some(golden!("special_tokens_map.json")),
    )
    .unwrap();
    let fixture: Fixture = serde_json::from_str(golden!("cases.json")).unwrap();
    assert!(fixture.cases.len() > 207);
    let is_later = |character| ('\u{323b0}'..='\u{33479}').contains(&character);
    let (later, cases): (Vec<_>, Vec<_>) = fixture
        .cases
        .into_iter()
        .partition(|case| case.text.contains(is_later));
    assert!(later.len() < 5, "{}", later.len());
    for case in cases {
        let encoding = tokenizer.encode(&case.text);
        let got = &encoding.input_ids[..case.ids.len()];
        assert_eq!(got, case.ids, "{:?}", case.text);
        assert_eq!(encoding.token_count, case.token_count, "{:?}", case.text);
        assert_eq!(encoding.truncated_text, case.cut, "{:?}", case.text);
    }
}
