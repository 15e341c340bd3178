//! A source's bytes to a sink, checked on the way.

use sha2::{Digest, Sha256};

use crate::sniff::{is_lfs_pointer, is_web_page, recognise};
use crate::{ByteSource, LoadError, ManifestFile, SafetensorsStream, TensorSink};

/// Streams a safetensors file into `sink`; with a manifest entry its length and SHA-256 are checked as well.
///
/// `progress` gets the bytes of this file so far after every chunk; its error (`Cancelled`, say) stops the load.
/// The checksum is known only at the end: until this answers `Ok`, what the sink has got must not be relied on.
///
/// # Errors
/// Those of the source, of [`SafetensorsStream`], of the sink and of `progress`; `ChecksumMismatch`.
pub async fn load_safetensors(
    source: &impl ByteSource,
    expected: Option<&ManifestFile>,
    sink: &mut dyn TensorSink,
    progress: &mut dyn FnMut(u64) -> Result<(), LoadError>,
) -> Result<(), LoadError> {
    let mut check = Check::new(source.name(), expected);
    let mut stream = None;
    let mut take = |chunk: &[u8]| {
        check.update(chunk)?;
        // made with the first chunk, because a web source knows its length only when the reply has come
        stream
            .get_or_insert_with(|| {
                let length = expected
                    .map(|file| file.length)
                    .or_else(|| source.known_length());
                SafetensorsStream::new(source.name(), length)
            })
            .push(chunk, sink)?;
        progress(check.received)
    };
    source.stream(&mut take).await?;
    stream
        .unwrap_or_else(|| SafetensorsStream::new(source.name(), None))
        .finish()?;
    check.finish()
}

/// Reads a text file of at most `max_bytes` bytes; with a manifest entry its length and SHA-256 are checked as well.
///
/// # Errors
/// Those of the source; `Text` when it is longer, not UTF-8, a web page, or a Git LFS pointer; `Truncated`,
/// `ChecksumMismatch`.
pub async fn load_text(
    source: &impl ByteSource,
    expected: Option<&ManifestFile>,
    max_bytes: u64,
) -> Result<String, LoadError> {
    let text_error = |why: String| LoadError::Text {
        name: source.name().to_owned(),
        why,
    };
    let mut check = Check::new(source.name(), expected);
    let mut bytes = Vec::new();
    let streamed = source
        .stream(&mut |chunk| {
            let first: Vec<u8> = bytes.iter().chain(chunk).take(64).copied().collect();
            // before length and checksum: "a web page" says more than "other length"
            if bytes.len() < 64 && (is_web_page(&first) || is_lfs_pointer(&first)) {
                return Err(text_error(wrong_text(&first)));
            }
            if (bytes.len() + chunk.len()) as u64 > max_bytes {
                return Err(text_error(format!("it has more than {max_bytes} bytes")));
            }
            check.update(chunk)?;
            bytes.extend_from_slice(chunk);
            Ok(())
        })
        .await;
    streamed?;
    check.finish()?;
    String::from_utf8(bytes)
        .map_err(|e| text_error(format!("it is not UTF-8 text ({})", e.utf8_error())))
}

fn wrong_text(first: &[u8]) -> String {
    if is_web_page(first) {
        return "a web page came back instead of JSON or text; check the address (a static host may answer with its start page when a file is missing)".to_owned();
    }
    recognise(first)
        .unwrap_or("it is of another kind")
        .to_owned()
}

/// Counts and hashes what arrives, and holds it against the manifest.
struct Check<'a> {
    name: &'a str,
    expected: Option<(&'a ManifestFile, Sha256)>,
    received: u64,
}

impl<'a> Check<'a> {
    fn new(name: &'a str, expected: Option<&'a ManifestFile>) -> Self {
        Self {
            name,
            expected: expected.map(|file| (file, Sha256::new())),
            received: 0,
        }
    }

    fn update(&mut self, chunk: &[u8]) -> Result<(), LoadError> {
        self.received = self.received.saturating_add(chunk.len() as u64);
        match &mut self.expected {
            Some((file, _)) if self.received > file.length => Err(LoadError::Truncated {
                name: self.name.to_owned(),
                expected: file.length,
                got: self.received,
            }),
            Some((_, hash)) => {
                hash.update(chunk);
                Ok(())
            }
            None => Ok(()),
        }
    }

    fn finish(self) -> Result<(), LoadError> {
        let Some((file, hash)) = self.expected else {
            return Ok(());
        };
        if self.received != file.length {
            return Err(LoadError::Truncated {
                name: self.name.to_owned(),
                expected: file.length,
                got: self.received,
            });
        }
        let got: String = hash
            .finalize()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        if got != file.sha256 {
            return Err(LoadError::ChecksumMismatch {
                name: self.name.to_owned(),
                expected: file.sha256.clone(),
                got,
            });
        }
        Ok(())
    }
}
