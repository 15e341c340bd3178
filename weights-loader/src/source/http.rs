//! What the headers of an HTTP reply allow to conclude. Plain rules, apart from any browser, so that they can be tested.

use std::ops::Range;

use crate::LoadError;

/// The parts of a reply that matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reply {
    /// The status, after redirects.
    pub status: u16,
    /// `Content-Length`, if a script may see it.
    pub content_length: Option<String>,
    /// `Content-Encoding`, if a script may see it.
    pub content_encoding: Option<String>,
    /// `Content-Range`, if a script may see it.
    pub content_range: Option<String>,
    /// Whether all headers can be seen, so that a missing one was not sent: true for same-origin replies. Across origins
    /// a script sees `Content-Length` always, and `Content-Encoding` only if the server exposes it.
    pub all_headers_visible: bool,
}

impl Reply {
    /// `Content-Length` as the number of bytes that will arrive, or `None` where it may count compressed bytes.
    #[must_use]
    pub fn body_length(&self) -> Option<u64> {
        let encoded = match self.content_encoding.as_deref() {
            Some(encoding) => !encoding.trim().eq_ignore_ascii_case("identity"),
            None => !self.all_headers_visible,
        };
        if encoded {
            return None;
        }
        self.content_length
            .as_deref()
            .and_then(|text| text.trim().parse().ok())
    }

    /// The length of the whole file as `Content-Range: bytes 0-9/1000` or `bytes */1000` tells it.
    #[must_use]
    pub fn range_total(&self) -> Option<u64> {
        let (_, total) = self.content_range.as_deref()?.split_once('/')?;
        total.trim().parse().ok()
    }

    /// Holds a finished whole-file body against the announced length.
    ///
    /// # Errors
    /// `Truncated`.
    pub fn check_body(&self, url: &str, got: u64) -> Result<(), LoadError> {
        match self.body_length() {
            Some(expected) if expected != got => Err(LoadError::Truncated {
                name: url.to_owned(),
                expected,
                got,
            }),
            _ => Ok(()),
        }
    }

    /// Judges the reply to a request for the whole file.
    ///
    /// # Errors
    /// `Http` unless the status is 200 (a 206 nobody asked for would be a part taken for the whole).
    pub fn check_whole(&self, url: &str) -> Result<(), LoadError> {
        if self.status == 200 {
            Ok(())
        } else {
            Err(LoadError::Http {
                url: url.to_owned(),
                status: self.status,
            })
        }
    }

    /// Judges the reply to a request for `range`, and says how to cut it from the body.
    ///
    /// # Errors
    /// `Http` for other statuses than 200 and 206, `Truncated` when the file ends before the range,
    /// `Network` when the part is another one than was asked for, or compressed.
    pub fn cut(&self, url: &str, range: &Range<u64>) -> Result<RangeCut, LoadError> {
        let network = |why: &str| LoadError::Network {
            url: url.to_owned(),
            why: why.to_owned(),
        };
        let truncated = |got| LoadError::Truncated {
            name: url.to_owned(),
            expected: range.end,
            got,
        };
        match self.status {
            200 => Ok(RangeCut {
                skip: range.start,
                wanted: range.end - range.start,
                exact: false,
            }),
            206 => {
                let encoding = self
                    .content_encoding
                    .as_deref()
                    .map_or("identity", str::trim);
                if !encoding.eq_ignore_ascii_case("identity") {
                    return Err(network("the server compressed a part of the file"));
                }
                if let Some(total) = self.range_total().filter(|&total| total < range.end) {
                    return Err(truncated(total));
                }
                if let Some(header) = self.content_range.as_deref() {
                    let asked = format!("bytes {}-{}", range.start, range.end - 1);
                    let sent = header.split('/').next().unwrap_or_default().trim();
                    if !sent.eq_ignore_ascii_case(&asked) {
                        return Err(network(
                            "the server sent another part of the file than was asked for",
                        ));
                    }
                }
                Ok(RangeCut {
                    skip: 0,
                    wanted: range.end - range.start,
                    exact: true,
                })
            }
            416 if self.range_total().is_some() => Err(truncated(self.range_total().unwrap_or(0))),
            status => Err(LoadError::Http {
                url: url.to_owned(),
                status,
            }),
        }
    }
}

/// The value of the `Range` header for a range that is not empty.
#[must_use]
pub fn range_header(range: &Range<u64>) -> String {
    format!("bytes={}-{}", range.start, range.end.saturating_sub(1))
}

/// Cuts the asked range out of a body that is either the range or the whole file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeCut {
    /// Bytes of the body before the range that are still to come.
    skip: u64,
    /// Bytes of the range that are still to come.
    wanted: u64,
    /// Whether the body must end with the range.
    exact: bool,
}

impl RangeCut {
    /// Appends to `out` what of `chunk` belongs to the range. Answers whether the transfer should go on.
    ///
    /// # Errors
    /// `Truncated` when a body that must be the range alone is longer than it.
    pub fn push(&mut self, url: &str, chunk: &[u8], out: &mut Vec<u8>) -> Result<bool, LoadError> {
        let length = chunk.len() as u64;
        let skipped = self.skip.min(length);
        let taken = self.wanted.min(length - skipped);
        self.skip -= skipped;
        self.wanted -= taken;
        out.extend_from_slice(&chunk[skipped as usize..(skipped + taken) as usize]);
        if self.exact && skipped + taken < length {
            let expected = out.len() as u64;
            let got = expected + length - taken;
            return Err(LoadError::Truncated {
                name: url.to_owned(),
                expected,
                got,
            });
        }
        // an exact body is read to its end, so that one that is too long is noticed
        Ok(self.exact || self.wanted > 0)
    }

    /// Says that the body has ended; `range` is the one that was asked for.
    ///
    /// # Errors
    /// `Truncated` when bytes of the range are missing.
    pub fn finish(self, url: &str, range: &Range<u64>) -> Result<(), LoadError> {
        if self.wanted == 0 {
            return Ok(());
        }
        // what is missing before the range plus what is missing of it
        let got = (range.end - self.wanted).saturating_sub(self.skip);
        Err(LoadError::Truncated {
            name: url.to_owned(),
            expected: range.end,
            got,
        })
    }
}
