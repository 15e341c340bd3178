//! Where bytes come from: memory, disk, or a web server.

use std::ops::Range;

use crate::LoadError;
use crate::load::load_text;

#[cfg(not(target_family = "wasm"))]
pub mod disk;
#[cfg(target_family = "wasm")]
pub mod fetch;
pub mod http;
pub mod memory;

/// Takes chunks as they arrive; an error aborts the transfer.
pub type ChunkSink<'a> = dyn FnMut(&[u8]) -> Result<(), LoadError> + 'a;

/// A file of known or unknown length that can be read from the start, or in part.
///
/// The futures are not `Send`: in a browser they belong to the thread that made them. Dropping one cancels its transfer.
#[allow(async_fn_in_trait)]
pub trait ByteSource {
    /// The address or path, for messages.
    fn name(&self) -> &str;

    /// The length in bytes as far as it is known without asking anybody; a web source knows it once a reply has come,
    /// and only if the reply's headers can be trusted with it.
    fn known_length(&self) -> Option<u64>;

    /// The length in bytes, asking for it if need be; `None` if the source does not tell.
    ///
    /// # Errors
    /// `Http`, `Network` or `Storage` when the file cannot be reached.
    async fn length(&self) -> Result<Option<u64>, LoadError>;

    /// The whole file from its first byte, chunk by chunk as it arrives; answers the number of bytes delivered.
    ///
    /// # Errors
    /// `Http`, `Network` or `Storage` when the file cannot be read, `Truncated` when it ends before its announced length,
    /// and whatever the sink answers.
    async fn stream(&self, sink: &mut ChunkSink<'_>) -> Result<u64, LoadError>;

    /// The bytes of this range, exactly; nothing for an empty range.
    ///
    /// # Errors
    /// As [`Self::stream`]; `Truncated` when the file ends before the range does.
    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, LoadError>;
}

/// The whole file as text, if it has at most `max_bytes` bytes.
///
/// # Errors
/// Those of [`ByteSource::stream`]; `Text` when it is longer, not UTF-8, a web page, or a Git LFS pointer.
pub async fn read_text(source: &impl ByteSource, max_bytes: u64) -> Result<String, LoadError> {
    load_text(source, None, max_bytes).await
}

/// Memory for the bytes of a range, or `Storage` if there is not enough: a range may come from a stranger's header.
fn range_buffer(name: &str, range: &Range<u64>) -> Result<Vec<u8>, LoadError> {
    let length = range.end.saturating_sub(range.start);
    let mut buffer = Vec::new();
    usize::try_from(length)
        .ok()
        .and_then(|length| buffer.try_reserve_exact(length).ok())
        .ok_or_else(|| LoadError::Storage {
            why: format!("there is no memory for {length} bytes of {name}"),
        })?;
    Ok(buffer)
}
