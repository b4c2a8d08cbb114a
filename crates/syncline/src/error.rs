//! The one error type users see, whatever layer it came from.

use syncline_cluster as cluster;

use crate::ErrorKind;

/// Why a call failed: a readable text, a stable [`kind`](Error::kind), and the member at fault where one is known.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(#[from] cluster::Error);

impl Error {
    pub(crate) fn into_inner(self) -> cluster::Error {
        self.0
    }

    pub(crate) fn configuration(detail: impl Into<String>) -> Error {
        Error(cluster::Error::Configuration { detail: detail.into() })
    }

    /// A function of the caller's, which ran inside of `operation`, failed as `detail` says.
    pub fn of_function(operation: &str, detail: impl Into<String>) -> Error {
        Error(cluster::Error::System { operation: operation.into(), detail: detail.into() })
    }

    /// The stable family; each binding maps it to its own exception.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind()
    }

    /// The member at fault, where one is known.
    pub fn who(&self) -> Option<&cluster::Who> {
        self.0.who()
    }
}
