//! Credentials that a machine or a service gives.

use std::sync::{Mutex, PoisonError};

use tree::json::Json;

use crate::error::RemoteError;
use crate::http::Headers;
use crate::options::Surroundings;

/// For how long credentials that can end are used before they are fetched again, in seconds: those
/// of a machine are replaced at least five minutes before they end.
const CREDENTIALS_SECONDS: u64 = 240;

/// Credentials that are fetched when they are needed, and again when they are old.
pub(crate) struct Fetched<T> {
    /// When, what, and where from; nowhere if the word is empty.
    found: Mutex<Option<(u64, T, &'static str)>>,
    places: &'static str,
}

impl<T: Clone> Fetched<T> {
    /// Not yet. The places are for messages.
    pub(crate) fn new(places: &'static str) -> Fetched<T> {
        Fetched {
            found: Mutex::default(),
            places,
        }
    }

    /// The credentials that were fetched less than four minutes ago, or are fetched now.
    pub(crate) fn find(
        &self,
        surroundings: &Surroundings,
        fetch: impl FnOnce() -> Result<(T, &'static str), RemoteError>,
    ) -> Result<T, RemoteError> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        let now = surroundings.now();
        match &*found {
            Some((at, value, _)) if now.saturating_sub(*at) < CREDENTIALS_SECONDS => {
                Ok(value.clone())
            }
            _ => {
                let (value, source) = fetch()?;
                *found = Some((now, value.clone(), source));
                Ok(value)
            }
        }
    }

    pub(crate) fn looked_for(&self) -> String {
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        match &*found {
            Some((_, _, source)) if !source.is_empty() => {
                format!("the credentials are those of {source}")
            }
            _ => format!("no credentials in {}", self.places),
        }
    }
}

/// The text in a field of an answer.
pub(crate) fn field(answer: &[u8], name: &str) -> Option<String> {
    Some(Json::parse(answer)?.text(name)?.to_owned())
}

/// The header of a token.
pub(crate) fn bearer(token: Option<String>) -> Headers {
    let header = |token| ("authorization".to_owned(), format!("Bearer {token}"));
    token.map(header).into_iter().collect()
}
