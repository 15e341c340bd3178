//! What is concluded from an HTTP reply: cases that real servers have shown.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::ops::Range;

use weights_loader::LoadError;
use weights_loader::source::http::{Reply, range_header};

const URL: &str = "https://example.org/model.safetensors";

fn reply(status: u16) -> Reply {
    Reply {
        status,
        all_headers_visible: true,
        ..Reply::default()
    }
}

fn file() -> Vec<u8> {
    (0..1000u32).map(|i| (i * 7 % 251) as u8).collect()
}

/// Takes `range` out of a reply's body that arrives in chunks; answers how many bytes were read as well.
fn cut(
    reply: &Reply,
    range: Range<u64>,
    body: &[u8],
    chunk: usize,
) -> Result<(Vec<u8>, usize), LoadError> {
    let (mut cut, mut out, mut read) = (reply.cut(URL, &range)?, Vec::new(), 0);
    for chunk in body.chunks(chunk) {
        read += chunk.len();
        if !cut.push(URL, chunk, &mut out)? {
            break;
        }
    }
    cut.finish(URL, &range)?;
    Ok((out, read))
}

fn truncated(answer: Result<(Vec<u8>, usize), LoadError>) -> (u64, u64) {
    match answer {
        Err(LoadError::Truncated { expected, got, .. }) => (expected, got),
        other => panic!("expected Truncated, got {other:?}"),
    }
}

#[test]
fn range_header_counts_inclusively() {
    assert_eq!(range_header(&(100..200)), "bytes=100-199");
    assert_eq!(range_header(&(0..1)), "bytes=0-0");
}

/// D01: the server ignores the range and sends the whole file.
#[test]
fn whole_file_for_a_range_is_cut_and_cancelled() {
    let file = file();
    let whole = Reply {
        content_length: Some("1000".to_owned()),
        ..reply(200)
    };
    for chunk in [1, 7, 64, 100, 150, 1000] {
        let (bytes, read) = cut(&whole, 100..200, &file, chunk).unwrap();
        assert_eq!(bytes, file[100..200], "chunks of {chunk}");
        assert!(read < 200 + chunk, "the rest was read in chunks of {chunk}");
    }
    assert_eq!(cut(&whole, 0..1000, &file, 64).unwrap().0, file);
}

#[test]
fn whole_file_that_ends_before_or_within_the_range() {
    let file = file();
    assert_eq!(
        truncated(cut(&reply(200), 990..1010, &file, 64)),
        (1010, 1000)
    );
    assert_eq!(
        truncated(cut(&reply(200), 2000..2010, &file, 64)),
        (2010, 1000)
    );
}

/// D03: a cross-origin reply without visible headers is taken when its length is right.
#[test]
fn part_without_visible_headers() {
    let hidden = Reply {
        status: 206,
        ..Reply::default()
    };
    let file = file();
    assert_eq!(
        cut(&hidden, 100..200, &file[100..200], 33).unwrap().0,
        file[100..200]
    );
    assert_eq!(
        truncated(cut(&hidden, 100..200, &file[100..150], 33)),
        (200, 150)
    );
    assert_eq!(
        truncated(cut(&hidden, 100..200, &file[100..201], 33)),
        (100, 101)
    );
}

#[test]
fn visible_content_range_must_be_the_asked_one() {
    let with = |header: &str| Reply {
        content_range: Some(header.to_owned()),
        ..reply(206)
    };
    let part = &file()[100..200];
    assert!(cut(&with("bytes 100-199/1000"), 100..200, part, 64).is_ok());
    assert!(cut(&with("bytes 100-199/*"), 100..200, part, 64).is_ok());
    for other in [
        "bytes 0-99/1000",
        "bytes 100-198/1000",
        "bytes 101-200/1000",
        "nonsense",
    ] {
        let error = cut(&with(other), 100..200, part, 64).unwrap_err();
        assert_eq!(error.code(), "network", "{other}");
    }
    assert_eq!(
        truncated(cut(&with("bytes 100-149/150"), 100..200, part, 64)),
        (200, 150)
    );
}

/// D04, last clause: a part of a compressed body is no part of the file.
#[test]
fn compressed_part_is_refused() {
    let gzip = Reply {
        content_encoding: Some("gzip".to_owned()),
        ..reply(206)
    };
    assert_eq!(
        cut(&gzip, 0..10, &[0; 10], 4).unwrap_err().code(),
        "network"
    );
    let identity = Reply {
        content_encoding: Some("identity".to_owned()),
        ..reply(206)
    };
    assert!(cut(&identity, 0..10, &[0; 10], 4).is_ok());
}

#[test]
fn other_statuses() {
    let http = |status| LoadError::Http {
        url: URL.to_owned(),
        status,
    };
    for status in [204, 301, 403, 404, 416, 429, 500] {
        assert_eq!(cut(&reply(status), 0..10, &[0; 10], 4), Err(http(status)));
        assert_eq!(reply(status).check_whole(URL), Err(http(status)));
    }
    assert_eq!(reply(206).check_whole(URL), Err(http(206)));
    assert_eq!(reply(200).check_whole(URL), Ok(()));
}

/// D03: 416 for an empty file.
#[test]
fn range_of_an_empty_file() {
    let empty = Reply {
        content_range: Some("bytes */0".to_owned()),
        ..reply(416)
    };
    assert_eq!(truncated(cut(&empty, 0..8, &[], 4)), (8, 0));
}

/// D04: the announced length counts compressed bytes.
#[test]
fn compressed_length_is_not_held_against_the_body() {
    let gzip = Reply {
        content_length: Some("2888775".to_owned()),
        content_encoding: Some("gzip".to_owned()),
        ..reply(200)
    };
    assert_eq!(gzip.body_length(), None);
    assert_eq!(gzip.check_body(URL, 3_185_226), Ok(()));
    // across origins `Content-Length` can be seen, and the encoding that explains it cannot
    let hidden = Reply {
        content_encoding: None,
        all_headers_visible: false,
        ..gzip.clone()
    };
    assert_eq!(hidden.check_body(URL, 3_185_226), Ok(()));
    for encoding in [None, Some("identity".to_owned())] {
        let plain = Reply {
            content_encoding: encoding,
            ..gzip.clone()
        };
        assert_eq!(plain.body_length(), Some(2_888_775));
        assert_eq!(plain.check_body(URL, 2_888_775), Ok(()));
        assert_eq!(
            plain.check_body(URL, 2_888_774).unwrap_err().code(),
            "truncated"
        );
        assert_eq!(
            plain.check_body(URL, 3_185_226).unwrap_err().code(),
            "truncated"
        );
    }
}

#[test]
fn lengths_that_are_none() {
    for text in ["", "-1", "1e3", "18446744073709551616", "12, 12"] {
        let odd = Reply {
            content_length: Some(text.to_owned()),
            ..reply(200)
        };
        assert_eq!(odd.body_length(), None, "{text}");
    }
}
