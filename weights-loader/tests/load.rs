//! Sources, and loading from them with and without a manifest.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod common;

use std::cell::Cell;
use std::ops::Range;

use common::{Keep, NAME, entry, file};
use pollster::block_on;
use sha2::{Digest, Sha256};
use weights_loader::source::ChunkSink;
use weights_loader::{
    ByteSource, DiskSource, LoadError, Manifest, ManifestFile, MemorySource, ProgressSum,
    load_safetensors, load_text, read_text,
};

fn model() -> Vec<u8> {
    let header = format!(
        "{{{},{}}}",
        entry("a", "F16", "[5]", 0, 10),
        entry("b", "F32", "[2]", 10, 18)
    );
    file(header, &(0..18).collect::<Vec<u8>>())
}

fn manifest_file(bytes: &[u8]) -> ManifestFile {
    let sha256 = Sha256::digest(bytes)
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    ManifestFile {
        path: NAME.to_owned(),
        length: bytes.len() as u64,
        sha256,
    }
}

/// Loads from memory in chunks of 7 bytes; answers what was kept and the progress reports.
fn load(bytes: &[u8], expected: Option<&ManifestFile>) -> (Result<(), LoadError>, Keep, Vec<u64>) {
    let source = MemorySource::new(NAME, bytes.to_vec()).with_chunk_bytes(7);
    let (mut keep, mut reports) = (Keep::default(), Vec::new());
    let result = block_on(load_safetensors(
        &source,
        expected,
        &mut keep,
        &mut |received| {
            reports.push(received);
            Ok(())
        },
    ));
    (result, keep, reports)
}

#[test]
fn loads_with_and_without_a_manifest() {
    let bytes = model();
    for expected in [None, Some(manifest_file(&bytes))] {
        let (result, keep, reports) = load(&bytes, expected.as_ref());
        assert_eq!(result, Ok(()));
        assert_eq!(keep.ended, ["a", "b"]);
        assert_eq!(keep.tensors["b"], (10..18).collect::<Vec<u8>>());
        assert!(reports.is_sorted() && reports.last() == Some(&(bytes.len() as u64)));
        assert_eq!(reports.len(), bytes.len().div_ceil(7));
    }
}

#[test]
fn changed_byte_is_a_checksum_mismatch() {
    let mut bytes = model();
    let expected = manifest_file(&bytes);
    *bytes.last_mut().unwrap() ^= 1;
    match load(&bytes, Some(&expected)).0 {
        Err(LoadError::ChecksumMismatch {
            name,
            expected: wanted,
            got,
        }) => {
            assert_eq!((name.as_str(), wanted), (NAME, expected.sha256));
            assert_eq!(got, manifest_file(&bytes).sha256);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn other_length_than_the_manifest_is_refused_before_any_tensor() {
    let bytes = model();
    for wrong in [bytes.len() as u64 - 3, bytes.len() as u64 + 3] {
        let expected = ManifestFile {
            length: wrong,
            ..manifest_file(&bytes)
        };
        let (result, keep, _) = load(&bytes, Some(&expected));
        assert_eq!(result.unwrap_err().code(), "truncated");
        assert!(!keep.begun);
    }
}

#[test]
fn empty_file_and_web_page() {
    let why = |bytes: &[u8]| load(bytes, None).0.unwrap_err().to_string();
    assert!(why(b"").contains("empty"));
    assert!(why(b"<!DOCTYPE html><title>Not here</title>").contains("web page"));
    let pointer = b"version https://git-lfs.github.com/spec/v1\n";
    assert!(why(pointer).contains("LFS pointer"));
    // with a manifest it is the wrong length too, and the reason still comes first
    let answer = load(pointer, Some(&manifest_file(&model())))
        .0
        .unwrap_err()
        .to_string();
    assert!(answer.contains("LFS pointer"), "{answer}");
}

#[test]
fn progress_can_cancel() {
    let source = MemorySource::new(NAME, model()).with_chunk_bytes(10);
    let mut keep = Keep::default();
    let mut cancel = |received| {
        if received > 20 {
            Err(LoadError::Cancelled)
        } else {
            Ok(())
        }
    };
    let result = block_on(load_safetensors(&source, None, &mut keep, &mut cancel));
    assert_eq!(result, Err(LoadError::Cancelled));
    assert!(keep.ended.is_empty());
}

/// A source that ends early without saying so, as a server does that closes the connection of a chunked reply;
/// it counts the bytes that were taken from it.
struct Cut {
    inner: MemorySource,
    end: u64,
    length: Option<u64>,
    taken: Cell<u64>,
}

impl ByteSource for Cut {
    fn name(&self) -> &str {
        self.inner.name()
    }
    fn known_length(&self) -> Option<u64> {
        // like a web source: unknown before the reply has come
        self.length.filter(|_| self.taken.get() > 0)
    }
    async fn length(&self) -> Result<Option<u64>, LoadError> {
        Ok(self.length)
    }
    async fn stream(&self, sink: &mut ChunkSink<'_>) -> Result<u64, LoadError> {
        for byte in self.inner.read(0..self.end).await? {
            self.taken.set(self.taken.get() + 1);
            sink(&[byte])?;
        }
        Ok(self.end)
    }
    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, LoadError> {
        self.inner.read(range).await
    }
}

fn load_cut(end: u64, length: Option<u64>) -> (LoadError, u64, Keep) {
    let source = Cut {
        inner: MemorySource::new(NAME, model()),
        end,
        length,
        taken: Cell::new(0),
    };
    let mut keep = Keep::default();
    let error = block_on(load_safetensors(&source, None, &mut keep, &mut |_| Ok(()))).unwrap_err();
    (error, source.taken.get(), keep)
}

#[test]
fn early_end_is_truncated() {
    let length = model().len() as u64;
    let (error, _, keep) = load_cut(length - 9, None);
    let expected = LoadError::Truncated {
        name: NAME.to_owned(),
        expected: length,
        got: length - 9,
    };
    assert_eq!(error, expected);
    assert_eq!(keep.ended.len(), 0);
}

/// C08 (a): nothing behind the header is taken from a server whose file is shorter than the header says.
#[test]
fn short_file_is_refused_with_its_header() {
    let length = model().len() as u64;
    let (error, taken, keep) = load_cut(length - 9, Some(length - 9));
    let expected = LoadError::Truncated {
        name: NAME.to_owned(),
        expected: length,
        got: length - 9,
    };
    assert_eq!(error, expected);
    assert_eq!(taken, length - 18, "exactly the 8 bytes and the header");
    assert!(!keep.begun);
}

/// A cut header whose 8 bytes promise more than the file has costs 8 bytes.
#[test]
fn header_beyond_the_file_is_refused_with_its_length() {
    let (error, taken, _) = load_cut(30, Some(30));
    assert_eq!((error.code(), taken), ("header", 8));
}

#[test]
fn memory_ranges() {
    let source = MemorySource::new(NAME, (0..100).collect());
    assert_eq!(block_on(source.length()), Ok(Some(100)));
    check_ranges(&source);
}

#[test]
fn disk_source() {
    let path = std::env::temp_dir().join(format!("weights-loader-{}.bin", std::process::id()));
    std::fs::write(&path, (0..100).collect::<Vec<u8>>()).unwrap();
    let source = DiskSource::new(&path);
    assert_eq!(block_on(source.length()), Ok(Some(100)));
    check_ranges(&source);
    let mut got = Vec::new();
    let delivered = block_on(source.stream(&mut |chunk| {
        got.extend_from_slice(chunk);
        Ok(())
    }));
    assert_eq!((delivered, got), (Ok(100), (0..100).collect()));
    std::fs::remove_file(&path).unwrap();
    let missing = block_on(source.length()).unwrap_err();
    assert!(missing.is_not_found() && missing.to_string().contains("weights-loader-"));
}

fn check_ranges(source: &impl ByteSource) {
    let read = |range| block_on(source.read(range));
    assert_eq!(read(10..20), Ok((10..20).collect()));
    assert_eq!(read(0..100), Ok((0..100).collect()));
    assert_eq!(read(50..50), Ok(vec![]));
    assert_eq!(read(500..500), Ok(vec![]));
    for beyond in [90..101, 100..101] {
        match read(beyond.clone()) {
            Err(LoadError::Truncated { expected, got, .. }) => {
                assert_eq!((expected, got), (beyond.end, 100));
            }
            other => panic!("{beyond:?}: {other:?}"),
        }
    }
    // no panic and no abort, whatever a header asks for
    assert!(read(0..u64::MAX).is_err());
}

#[test]
fn text_is_read() {
    let text = "#version: 0.2\ni n\nt h</w>\n√ü 🍎\n";
    let source = MemorySource::new("merges.txt", text.as_bytes().to_vec()).with_chunk_bytes(1);
    assert_eq!(block_on(read_text(&source, 1000)).as_deref(), Ok(text));
    let expected = manifest_file(text.as_bytes());
    assert_eq!(
        block_on(load_text(&source, Some(&expected), 1000)).as_deref(),
        Ok(text)
    );
    let other = ManifestFile {
        sha256: "0".repeat(64),
        ..expected
    };
    let mismatch = block_on(load_text(&source, Some(&other), 1000)).unwrap_err();
    assert_eq!(mismatch.code(), "checksum-mismatch");
}

fn text_refusal(bytes: &[u8], chunk: usize, max: u64) -> String {
    let source = MemorySource::new("config.json", bytes.to_vec()).with_chunk_bytes(chunk);
    match block_on(read_text(&source, max)) {
        Err(LoadError::Text { name, why }) if name == "config.json" => why,
        other => panic!("{other:?}"),
    }
}

/// D08: a server answers 200 with its start page for a file that is missing.
#[test]
fn web_page_instead_of_json() {
    for page in [
        "<!DOCTYPE html><html>",
        "\n  <!doctype HTML>",
        "<html lang='en'>",
        "<?xml version='1.0'?>",
    ] {
        for chunk in [1, 5, 1000] {
            let why = text_refusal(page.as_bytes(), chunk, 1000);
            assert!(why.contains("web page") && why.contains("JSON"), "{why}");
        }
    }
    let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n";
    assert!(text_refusal(pointer, 3, 1000).contains("LFS pointer"));
}

#[test]
fn text_too_long_or_not_utf8() {
    assert!(text_refusal(&[b' '; 11], 4, 10).contains("more than 10 bytes"));
    assert!(text_refusal(b"{\"a\":\"\xff\"}", 4, 100).contains("not UTF-8"));
    let exact = MemorySource::new("config.json", vec![b' '; 10]);
    assert!(block_on(read_text(&exact, 10)).is_ok());
}

#[test]
fn manifest_round_trip_and_lookup() {
    let files = vec![
        manifest_file(&model()),
        ManifestFile {
            path: "vae/config.json".to_owned(),
            ..manifest_file(b"{}")
        },
    ];
    let manifest = Manifest {
        guidance_scale: None,
        name: "emoji".to_owned(),
        files,
    };
    let json = serde_json::to_string(&manifest).unwrap();
    assert_eq!(
        Manifest::parse("manifest.json", &json),
        Ok(manifest.clone())
    );
    assert_eq!(manifest.total_bytes(), model().len() as u64 + 2);
    assert_eq!(manifest.get("vae/config.json").unwrap().length, 2);
    assert_eq!(manifest.get("config.json"), None);
}

#[test]
fn manifests_that_are_refused() {
    let refused = |files: &[(&str, u64, &str)]| {
        let files: Vec<_> = files
            .iter()
            .map(|&(path, length, sha256)| ManifestFile {
                path: path.to_owned(),
                length,
                sha256: sha256.to_owned(),
            })
            .collect();
        let json = serde_json::to_string(&Manifest {
            guidance_scale: None,
            name: String::new(),
            files,
        })
        .unwrap();
        Manifest::parse("manifest.json", &json)
            .unwrap_err()
            .to_string()
    };
    let sum = "0".repeat(64);
    for path in [
        "../a",
        "a/../../b",
        "/a",
        "a//b",
        "a/",
        "",
        ".",
        "https://x.org/a",
        "a\\b",
        "a?b",
    ] {
        assert!(
            refused(&[(path, 1, &sum)]).contains("inside the model's folder"),
            "{path}"
        );
    }
    assert!(refused(&[("a", 1, &sum), ("a", 1, &sum)]).contains("twice"));
    assert!(refused(&[("a", 1, &"A".repeat(64))]).contains("lower-case"));
    assert!(refused(&[("a", 1, "00")]).contains("64"));
    assert!(refused(&[("a", u64::MAX, &sum), ("b", 1, &sum)]).contains("2^64"));
    assert_eq!(
        Manifest::parse("manifest.json", "<!DOCTYPE html>")
            .unwrap_err()
            .code(),
        "text"
    );
}

#[test]
fn progress_sums_files() {
    let mut sum = ProgressSum::new(Some(100));
    assert_eq!(sum.start("a").received_bytes, 0);
    assert_eq!(sum.received(30).received_bytes, 30);
    // a retry from the start
    assert_eq!(sum.received(10).received_bytes, 10);
    assert_eq!(sum.received(40).received_bytes, 40);
    assert_eq!(sum.start("b").received_bytes, 40);
    let last = sum.received(60);
    assert_eq!(
        (last.file.as_str(), last.received_bytes, last.fraction()),
        ("b", 100, Some(1.0))
    );
}

/// D04: more arrives than a compressed length promised.
#[test]
fn progress_never_exceeds_the_total() {
    let mut sum = ProgressSum::new(Some(2_888_775));
    sum.start("vocab.json");
    assert!(sum.received(2_000_000).fraction().unwrap() < 1.0);
    let over = sum.received(3_185_226);
    assert_eq!((over.total_bytes, over.fraction()), (None, None));
    assert_eq!(
        ProgressSum::new(Some(0)).start("empty").fraction(),
        Some(1.0)
    );
}
