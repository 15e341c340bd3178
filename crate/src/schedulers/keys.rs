//! Typed reading of `scheduler_config.json`: a missing key is a default, a wrong one is an error that names it.

use serde_json::{Map, Value};

use super::config::FILE;
use crate::{Error, Result};

/// Typed access to the keys of the file; every error names its key.
pub(super) struct Keys<'a>(&'a Map<String, Value>);

impl<'a> Keys<'a> {
    pub(super) fn new(map: &'a Map<String, Value>) -> Self {
        Self(map)
    }

    fn wrong(key: &str, value: &Value, wanted: &str) -> Error {
        let mut shown = value.to_string();
        if shown.chars().count() > 60 {
            shown = shown.chars().take(60).chain("...".chars()).collect();
        }
        Error::config(FILE, format!("{key} must be {wanted}, and is {shown}"))
    }

    pub(super) fn text(&self, key: &str) -> Result<Option<&'a str>> {
        let Some(value) = self.0.get(key) else {
            return Ok(None);
        };
        value
            .as_str()
            .map(Some)
            .ok_or_else(|| Self::wrong(key, value, "a string"))
    }

    /// `null` is false, as in Python.
    pub(super) fn flag(&self, key: &str) -> Result<Option<bool>> {
        match self.0.get(key) {
            None => Ok(None),
            Some(Value::Null) => Ok(Some(false)),
            Some(Value::Bool(flag)) => Ok(Some(*flag)),
            Some(value) => Err(Self::wrong(key, value, "true or false")),
        }
    }

    pub(super) fn integer(&self, key: &str, default: u64, least: u64, most: u64) -> Result<usize> {
        let Some(value) = self.0.get(key) else {
            return Ok(default as usize);
        };
        value
            .as_u64()
            .filter(|number| (least..=most).contains(number))
            .map(|number| number as usize)
            .ok_or_else(|| Self::wrong(key, value, &format!("an integer from {least} to {most}")))
    }

    pub(super) fn positive(&self, key: &str) -> Result<Option<f64>> {
        match self.0.get(key) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => value
                .as_f64()
                .filter(|number| *number > 0.0 && (*number as f32).is_finite())
                .map(Some)
                .ok_or_else(|| Self::wrong(key, value, "a number above 0")),
        }
    }

    // Outside this range alpha-bar becomes 1, 0 or negative, and every later division or root gives NaN.
    fn is_beta(number: f64) -> bool {
        number > 0.0 && number < 1.0
    }

    pub(super) fn beta(&self, key: &str, default: f64) -> Result<f64> {
        let Some(value) = self.0.get(key) else {
            return Ok(default);
        };
        value
            .as_f64()
            .filter(|number| Self::is_beta(*number))
            .ok_or_else(|| Self::wrong(key, value, "a number between 0 and 1"))
    }

    pub(super) fn betas(&self, key: &str, count: usize) -> Result<Option<Vec<f32>>> {
        let value = match self.0.get(key) {
            None | Some(Value::Null) => return Ok(None),
            Some(value) => value,
        };
        let wrong = || {
            let wanted = format!("null or {count} numbers between 0 and 1");
            Self::wrong(key, value, &wanted)
        };
        let list = value
            .as_array()
            .filter(|list| list.len() == count)
            .ok_or_else(wrong)?;
        list.iter()
            .map(|item| {
                item.as_f64()
                    .filter(|number| Self::is_beta(*number))
                    .map(|number| number as f32)
            })
            .collect::<Option<Vec<f32>>>()
            .map(Some)
            .ok_or_else(wrong)
    }

    pub(super) fn choice<T: Copy>(&self, key: &str, names: &[(&str, T)]) -> Result<Option<T>> {
        let Some(value) = self.0.get(key) else {
            return Ok(None);
        };
        let known = value
            .as_str()
            .and_then(|text| names.iter().find(|(name, _)| *name == text));
        known.map(|(_, choice)| Some(*choice)).ok_or_else(|| {
            let list: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
            Self::wrong(key, value, &format!("one of {}", list.join(", ")))
        })
    }
}
