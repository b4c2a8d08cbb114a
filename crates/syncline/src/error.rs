//! The one error type users see, whatever layer it came from.

use syncline_cluster as cluster;
use syncline_ipc as ipc;

use crate::ErrorKind;

/// Why a call failed: a readable text, a stable [`kind`](Error::kind), and the member at fault where one is known.
#[derive(Debug, Clone, thiserror::Error)]
#[error(transparent)]
pub struct Error(Cause);

/// The layer that it came from, whose text and kind it has.
#[derive(Debug, Clone, thiserror::Error)]
enum Cause {
    #[error(transparent)]
    Job(#[from] cluster::Error),
    #[error(transparent)]
    Ipc(#[from] Box<ipc::Error>),
}

impl From<cluster::Error> for Error {
    fn from(error: cluster::Error) -> Error {
        Error(Cause::Job(error))
    }
}

impl From<ipc::Error> for Error {
    fn from(error: ipc::Error) -> Error {
        Error(Cause::Ipc(Box::new(error)))
    }
}

impl Error {
    /// The same for callers inside of the job's layers.
    pub(crate) fn into_inner(self) -> cluster::Error {
        match self.0 {
            Cause::Job(error) => error,
            Cause::Ipc(error) => cluster::Error::System { operation: "ipc".to_owned(), detail: error.to_string() },
        }
    }

    pub(crate) fn configuration(detail: impl Into<String>) -> Error {
        cluster::Error::Configuration { detail: detail.into() }.into()
    }

    /// A function of the caller's, which ran inside of `operation`, failed as `detail` says.
    pub fn of_function(operation: &str, detail: impl Into<String>) -> Error {
        cluster::Error::System { operation: operation.into(), detail: detail.into() }.into()
    }

    /// The stable family; each binding maps it to its own exception.
    pub fn kind(&self) -> ErrorKind {
        match &self.0 {
            Cause::Job(error) => error.kind(),
            Cause::Ipc(error) => error.kind(),
        }
    }

    /// The member at fault, where one is known. Channels, servers and clients know no ranks: the text names whom they know.
    pub fn who(&self) -> Option<&cluster::Who> {
        match &self.0 {
            Cause::Job(error) => error.who(),
            Cause::Ipc(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_ipc_keeps_its_words_and_its_kind() {
        fn open() -> Result<(), Error> {
            ipc::Family::accept("nonsense")?;
            Ok(())
        }
        let error = open().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        assert!(error.to_string().contains("`nonsense` is no invitation"), "{error}");
        assert!(error.who().is_none());
    }
}
