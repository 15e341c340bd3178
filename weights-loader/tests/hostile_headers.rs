//! One test per way in which a safetensors header can be wrong, or look wrong and be right.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use common::{NAME, answer, entry, file, header_refusal, stream};
use weights_loader::{Dtype, LoadError, SafetensorsIndex, SafetensorsStream};

fn two(a: (u64, u64), b: (u64, u64), data: usize) -> Vec<u8> {
    let a = entry("a", "U8", &format!("[{}]", a.1 - a.0), a.0, a.1);
    let b = entry("b", "U8", &format!("[{}]", b.1 - b.0), b.0, b.1);
    file(format!("{{{a},{b}}}"), &vec![7; data])
}

fn one(dtype: &str, shape: &str, end: u64) -> Vec<u8> {
    file(
        format!("{{{}}}", entry("a", dtype, shape, 0, end)),
        &vec![7; end as usize],
    )
}

fn truncated(file: &[u8]) -> (u64, u64) {
    match answer(file) {
        Err(LoadError::Truncated { expected, got, .. }) => (expected, got),
        other => panic!("expected Truncated, got {other:?}"),
    }
}

#[test]
fn length_over_cap_is_refused_before_the_header_arrives() {
    let why = header_refusal(&100_000_001u64.to_le_bytes());
    assert!(
        why.contains("100000001") && why.contains("100000000"),
        "{why}"
    );
}

#[test]
fn length_at_the_cap_is_waited_for() {
    assert_eq!(
        truncated(&[100_000_000u64.to_le_bytes().as_slice(), b"{"].concat()),
        (100_000_008, 9)
    );
}

#[test]
fn length_beyond_the_known_file_is_refused_at_once() {
    let why = SafetensorsIndex::header_length(NAME, 93u64.to_le_bytes(), Some(100)).unwrap_err();
    assert!(
        why.to_string().contains("101") && why.to_string().contains("100"),
        "{why}"
    );
    assert_eq!(
        SafetensorsIndex::header_length(NAME, 92u64.to_le_bytes(), Some(100)),
        Ok(92)
    );
}

#[test]
fn u64_max_length() {
    let why = header_refusal(&[0xff; 20]);
    assert!(why.contains(&u64::MAX.to_string()), "{why}");
}

#[test]
fn length_above_2_to_53_is_not_rounded() {
    let why = header_refusal(&9_007_199_254_740_993u64.to_le_bytes());
    assert!(why.contains("9007199254740993"), "{why}");
}

#[test]
fn zero_length_header() {
    assert!(header_refusal(&[0; 8]).contains("empty"));
}

#[test]
fn empty_file() {
    assert!(header_refusal(b"").contains("empty"));
}

#[test]
fn seven_byte_file() {
    assert!(header_refusal(&[1, 0, 0, 0, 0, 0, 0]).contains("too short"));
}

#[test]
fn overlap() {
    assert!(header_refusal(&two((0, 4), (2, 6), 6)).contains("overlaps tensor b"));
}

#[test]
fn the_same_bytes_twice() {
    assert!(header_refusal(&two((0, 4), (0, 4), 4)).contains("overlaps tensor b"));
}

#[test]
fn hole() {
    assert!(header_refusal(&two((0, 4), (5, 9), 9)).contains("hole lies before tensor b"));
}

#[test]
fn first_tensor_does_not_start_at_zero() {
    let bad = file(format!("{{{}}}", entry("a", "U8", "[2]", 1, 3)), &[0; 3]);
    assert!(header_refusal(&bad).contains("hole lies before tensor a"));
}

#[test]
fn begin_after_end() {
    let bad = file(format!("{{{}}}", entry("a", "U8", "[0]", 4, 0)), &[0; 4]);
    assert!(header_refusal(&bad).contains("before its begin"));
}

#[test]
fn negative_and_fractional_offsets() {
    for offsets in [
        "[-1,3]",
        "[0,3.5]",
        "[0]",
        "[0,1,2]",
        "[0,18446744073709551616]",
    ] {
        let bad = format!(r#"{{"a":{{"dtype":"U8","shape":[3],"data_offsets":{offsets}}}}}"#);
        assert!(
            header_refusal(&file(bad, &[0; 3])).contains("cannot be read"),
            "{offsets}"
        );
    }
}

#[test]
fn shape_product_overflows() {
    let why = header_refusal(&one("U8", "[4294967296,4294967296]", 8));
    assert!(why.contains("overflows"), "{why}");
}

#[test]
fn shape_times_element_size_overflows() {
    let why = header_refusal(&one("F64", "[1152921504606846976]", 0));
    assert!(why.contains("overflows"), "{why}");
}

#[test]
fn overflow_before_a_zero_is_an_overflow() {
    assert!(header_refusal(&one("U8", "[9223372036854775808,2,0]", 0)).contains("overflows"));
}

#[test]
fn end_of_data_overflows() {
    let bad = file(format!("{{{}}}", entry("a", "X9", "[1]", 0, u64::MAX)), &[]);
    assert!(header_refusal(&bad).contains("2^64"));
}

#[test]
fn wrong_size() {
    let why = header_refusal(&one("F16", "[2,3]", 13));
    assert!(why.contains("needs 12 bytes and has 13"), "{why}");
}

#[test]
fn half_a_byte() {
    assert!(header_refusal(&one("F4", "[3]", 2)).contains("within a byte"));
    assert!(answer(&one("F4", "[4]", 2)).is_ok());
    assert!(answer(&one("F6_E2M3", "[4]", 3)).is_ok());
}

#[test]
fn duplicate_name() {
    let (a, b) = (entry("a", "U8", "[1]", 0, 1), entry("a", "U8", "[2]", 0, 2));
    assert!(header_refusal(&file(format!("{{{b},{a}}}"), &[0])).contains("a occurs twice"));
}

#[test]
fn duplicate_name_behind_an_escape() {
    let (a, b) = (
        entry("a", "U8", "[1]", 0, 1),
        entry("\\u0061", "U8", "[1]", 1, 2),
    );
    assert!(header_refusal(&file(format!("{{{a},{b}}}"), &[0; 2])).contains("a occurs twice"));
}

#[test]
fn duplicate_metadata_and_duplicate_field() {
    let twice = r#"{"__metadata__":{},"__metadata__":{}}"#;
    assert!(header_refusal(&file(twice, &[])).contains("__metadata__ occurs twice"));
    let field = r#"{"a":{"dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0]}}"#;
    assert!(header_refusal(&file(field, &[])).contains("duplicate field"));
}

#[test]
fn bad_utf8() {
    assert!(header_refusal(&file(b"{\"\xff\xfe\":1}", &[])).contains("not UTF-8"));
}

#[test]
fn nul_padding_is_refused_by_name() {
    let why = header_refusal(&file("{}\0\0\0", &[]));
    assert!(why.contains("padded with NUL"), "{why}");
}

#[test]
fn trailing_spaces_and_newline_are_fine() {
    for header in ["{}     ", "{}\n", "{}\r\n\t "] {
        assert!(
            answer(&file(header, &[])).unwrap().0.tensors.is_empty(),
            "{header:?}"
        );
    }
}

#[test]
fn leading_space_is_refused() {
    assert!(header_refusal(&file(" {}", &[])).contains("0x20"));
}

#[test]
fn text_after_the_object_is_refused() {
    assert!(header_refusal(&file("{}{}", &[])).contains("trailing characters"));
}

#[test]
fn byte_order_mark() {
    assert!(header_refusal(&file(b"\xef\xbb\xbf{}", &[])).contains("byte-order mark"));
}

#[test]
fn only_metadata_is_fine() {
    let (index, kept) = answer(&file(r#"{"__metadata__":{"format":"pt"}}"#, &[])).unwrap();
    assert!(index.tensors.is_empty() && kept.begun);
    assert_eq!(index.metadata["format"], "pt");
}

#[test]
fn metadata_null_counts_as_none() {
    assert!(
        answer(&file(r#"{"__metadata__":null}"#, &[]))
            .unwrap()
            .0
            .metadata
            .is_empty()
    );
}

#[test]
fn metadata_with_a_number_or_an_object_is_refused() {
    for value in ["1", "null", "[]", "{}"] {
        let header = format!(r#"{{"__metadata__":{{"step":{value}}}}}"#);
        assert!(
            header_refusal(&file(header, &[])).contains("cannot be read"),
            "{value}"
        );
    }
}

#[test]
fn nested_nonsense() {
    let deep = format!("{{\"a\":{}{}}}", "[".repeat(100_000), "]".repeat(100_000));
    assert!(header_refusal(&file(deep, &[])).contains("cannot be read"));
    // an unknown field is skipped, as the reference does, however deep it goes, and costs no stack
    let unknown_field = format!(
        r#"{{"a":{{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":{}{}}}}}"#,
        "[".repeat(100_000),
        "]".repeat(100_000)
    );
    assert_eq!(answer(&file(unknown_field, &[])).unwrap().1.ended, ["a"]);
    for header in [
        "{",
        "{\"a\":1}",
        "{\"a\":[]}",
        "{\"a\":{}}",
        "{\"a\":\"b\"}",
        "{\"a\":null}",
    ] {
        assert!(
            header_refusal(&file(header, &[])).contains("cannot be read"),
            "{header}"
        );
    }
}

#[test]
fn an_array_is_no_header() {
    assert!(header_refusal(&file("[]", &[])).contains("0x5b"));
}

#[test]
fn lfs_pointer() {
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 335\n";
    assert_eq!(
        u64::from_le_bytes(pointer[..8].try_into().unwrap()),
        2_336_927_755_350_992_246
    );
    assert!(header_refusal(pointer).contains("LFS pointer"));
}

#[test]
fn web_page() {
    let page = b"<!DOCTYPE html><html><body>Not found</body></html>";
    assert_eq!(
        u64::from_le_bytes(page[..8].try_into().unwrap()),
        5_789_751_444_030_890_300
    );
    for page in [
        page.as_slice(),
        b"<html lang=en>",
        b"\n\n<!doctype html>",
        b"<html>",
        b"<?xml version='1.0'?><Error>",
    ] {
        assert!(header_refusal(page).contains("web page"), "{page:?}");
    }
}

#[test]
fn header_length_that_spells_an_angle_bracket_is_no_web_page() {
    let header = format!("{{{}}}", entry("a", "U8", "[1]", 0, 1));
    let padded = format!("{header:<60}");
    let bytes = file(padded, &[7]);
    assert_eq!(bytes[0], b'<');
    assert!(answer(&bytes).is_ok());
}

#[test]
fn gzip_pickle_gguf_and_json_are_named() {
    assert!(header_refusal(b"\x1f\x8b\x08\x00\x12\x34\x56\x78\x00\x03").contains("gzip"));
    // no time stamp: read as a length it is below the cap, so only the byte after it tells
    assert!(header_refusal(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03").contains("gzip"));
    assert!(
        header_refusal(b"PK\x03\x04\x00\x00\x08\x08\x00\x00archive/data.pkl").contains("pickle")
    );
    assert!(header_refusal(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.").contains("pickle"));
    assert!(header_refusal(b"GGUF\x03\x00\x00\x00\x01").contains("GGUF"));
    assert!(header_refusal(b"{\"weight_map\":{}}").contains("JSON"));
}

#[test]
fn trailing_bytes_are_refused() {
    let mut bytes = one("U8", "[4]", 4);
    let length = bytes.len() as u64;
    bytes.push(0);
    assert_eq!(truncated(&bytes), (length, length + 1));
}

#[test]
fn truncated_at_every_boundary() {
    let header = format!(
        "{{{},{}}}",
        entry("a", "F16", "[3]", 0, 6),
        entry("b", "F32", "[1]", 6, 10)
    );
    let whole = file(&header, &[1; 10]);
    assert!(answer(&whole).is_ok());
    for cut in 0..whole.len() {
        match answer(&whole[..cut]) {
            Err(LoadError::Header { .. }) if cut < 8 => {}
            Err(LoadError::Truncated { expected, got, .. }) => {
                assert_eq!(got, cut as u64);
                let header_end = 8 + header.len();
                assert_eq!(
                    expected as usize,
                    if cut < header_end {
                        header_end
                    } else {
                        whole.len()
                    }
                );
            }
            other => panic!("cut at {cut}: {other:?}"),
        }
    }
}

/// C08 (a): the header promises twice what the file has; refused when the header is there, before any tensor.
#[test]
fn known_length_refuses_before_the_first_tensor() {
    let whole = one("U8", "[100]", 100);
    let mut keep = common::Keep::default();
    let mut stream = SafetensorsStream::new(NAME, Some(whole.len() as u64 - 50));
    let error = stream
        .push(&whole[..whole.len() - 90], &mut keep)
        .unwrap_err();
    assert_eq!(
        error,
        LoadError::Truncated {
            name: NAME.to_owned(),
            expected: whole.len() as u64,
            got: whole.len() as u64 - 50
        }
    );
    assert!(!keep.begun);
    assert_eq!(stream.push(b"more", &mut keep).unwrap_err(), error);
    assert_eq!(stream.finish().unwrap_err(), error);
}

/// C01: an I64 `position_ids` beside the weights is no error here, nor is a format nobody knows.
#[test]
fn unwanted_formats_are_listed() {
    let ids = "text_model.embeddings.position_ids";
    let header = format!(
        "{{{},{}}}",
        entry(ids, "I64", "[1,77]", 0, 616),
        entry("new", "F3", "[5]", 616, 618)
    );
    let (index, kept) = stream(&file(header, &[0; 618]), 5).unwrap();
    assert_eq!(index.get(ids).unwrap().dtype, Dtype::I64);
    assert_eq!(index.get(ids).unwrap().shape, [1, 77]);
    assert_eq!(
        index.get("new").unwrap().dtype,
        Dtype::Other("F3".to_owned())
    );
    assert_eq!(kept.ended, [ids, "new"]);
    let mut out = Vec::new();
    let refused = weights_loader::decode_f32(index.get("new").unwrap(), &[0; 2], &mut out);
    assert_eq!(
        refused,
        Err(LoadError::UnsupportedDtype {
            name: "new".to_owned(),
            dtype: "F3".to_owned()
        })
    );
}
