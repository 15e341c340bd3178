//! A file on disk; native only.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::{ByteSource, ChunkSink, range_buffer};
use crate::LoadError;

const CHUNK_BYTES: usize = 1024 * 1024;

/// A local file. Reading blocks the thread, which is right for tests and command-line tools.
#[derive(Debug, Clone)]
pub struct DiskSource {
    path: PathBuf,
    name: String,
}

impl DiskSource {
    /// The file need not exist yet; it is opened with every call.
    #[must_use]
    pub fn new(path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_path_buf();
        let name = path.display().to_string();
        Self { path, name }
    }

    fn error(&self, error: &std::io::Error) -> LoadError {
        if error.kind() == std::io::ErrorKind::NotFound {
            return LoadError::NotFound {
                name: self.name.clone(),
            };
        }
        LoadError::Storage {
            why: format!("{}: {error}", self.name),
        }
    }

    fn open(&self) -> Result<(File, u64), LoadError> {
        let file = File::open(&self.path).map_err(|e| self.error(&e))?;
        let length = file.metadata().map_err(|e| self.error(&e))?.len();
        Ok((file, length))
    }
}

impl ByteSource for DiskSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn known_length(&self) -> Option<u64> {
        std::fs::metadata(&self.path)
            .ok()
            .map(|metadata| metadata.len())
    }

    async fn length(&self) -> Result<Option<u64>, LoadError> {
        Ok(Some(self.open()?.1))
    }

    async fn stream(&self, sink: &mut ChunkSink<'_>) -> Result<u64, LoadError> {
        let (mut file, length) = self.open()?;
        let mut buffer = vec![0; CHUNK_BYTES];
        let mut delivered = 0u64;
        loop {
            let n = match file.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(self.error(&e)),
            };
            sink(&buffer[..n])?;
            delivered += n as u64;
        }
        if delivered != length {
            return Err(LoadError::Truncated {
                name: self.name.clone(),
                expected: length,
                got: delivered,
            });
        }
        Ok(delivered)
    }

    async fn read(&self, range: Range<u64>) -> Result<Vec<u8>, LoadError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let (mut file, length) = self.open()?;
        if range.end > length {
            return Err(LoadError::Truncated {
                name: self.name.clone(),
                expected: range.end,
                got: length,
            });
        }
        let mut buffer = range_buffer(&self.name, &range)?;
        file.seek(SeekFrom::Start(range.start))
            .map_err(|e| self.error(&e))?;
        file.take(range.end - range.start)
            .read_to_end(&mut buffer)
            .map_err(|e| self.error(&e))?;
        let got = range.start + buffer.len() as u64;
        if got != range.end {
            return Err(LoadError::Truncated {
                name: self.name.clone(),
                expected: range.end,
                got,
            });
        }
        Ok(buffer)
    }
}
