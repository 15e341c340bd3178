//! A model's folder on a web server.

use weights_loader::FetchSource;

use crate::{Error, Result, pipeline::folder::ModelFolder};

/// The folder at an absolute address.
pub(super) struct FetchFolder {
    location: String,
}

impl FetchFolder {
    /// `location` must be absolute and end with a slash.
    pub(super) fn new(location: &str) -> Result<Self> {
        let absolute = ["http://", "https://", "blob:", "data:"]
            .iter()
            .any(|scheme| location.starts_with(scheme));
        if absolute && location.ends_with('/') {
            Ok(Self {
                location: location.to_owned(),
            })
        } else {
            Err(Error::invalid(
                "model",
                format!("must be the address of a model's folder, and is {location:?}"),
            ))
        }
    }
}

impl ModelFolder for FetchFolder {
    type Source = FetchSource;

    fn location(&self) -> &str {
        &self.location
    }

    fn open(&self, path: &str) -> FetchSource {
        FetchSource::new(&format!("{}{path}", self.location))
    }
}
