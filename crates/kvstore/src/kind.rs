//! Which stores there are, by the names that MXNet's users know.

use syncline_cluster::Error;

/// What a store is: where its values live, and when pushes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    name: &'static str,
    place: Place,
    device: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// This process.
    Here,
    /// All workers; their pushes count together.
    Sync,
    /// All workers; each push counts at once.
    Async,
}

const KNOWN: [Kind; 13] = {
    const fn kind(name: &'static str, place: Place, device: bool) -> Kind {
        Kind { name, place, device }
    }
    [
        kind("local", Place::Here, false),
        kind("local_update_cpu", Place::Here, false),
        kind("local_allreduce_cpu", Place::Here, false),
        kind("device", Place::Here, true),
        kind("local_allreduce_device", Place::Here, true),
        kind("row_sparse", Place::Here, false),
        kind("dist", Place::Sync, false),
        kind("dist_sync", Place::Sync, false),
        kind("dist_async", Place::Async, false),
        kind("dist_device_sync", Place::Sync, true),
        kind("dist_sync_device", Place::Sync, true),
        kind("dist_device_async", Place::Async, true),
        kind("dist_async_device", Place::Async, true),
    ]
};

impl Kind {
    /// The kind of this name, in any case.
    ///
    /// # Errors
    /// `Configuration` with all names for any other.
    ///
    /// ```
    /// use syncline_kvstore::Kind;
    ///
    /// assert_eq!(Kind::from_name("Dist_Sync")?.name(), "dist_sync");
    /// let error = Kind::from_name("dist_sink").unwrap_err();
    /// assert!(error.to_string().contains("dist_sync"));
    /// # Ok::<(), syncline_cluster::Error>(())
    /// ```
    pub fn from_name(name: &str) -> Result<Kind, Error> {
        let lower = name.to_lowercase();
        KNOWN.into_iter().find(|kind| kind.name == lower).ok_or_else(|| {
            let known = KNOWN.map(|kind| kind.name).join(", ");
            Error::Configuration { detail: format!("kvstore: no store is of type {name:?}\nhint: there are {known}") }
        })
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Kind> {
        KNOWN.into_iter()
    }

    /// Its name, in lower case.
    pub const fn name(self) -> &'static str {
        self.name
    }

    /// Whether its values live with the servers of a job.
    pub const fn is_distributed(self) -> bool {
        !matches!(self.place, Place::Here)
    }

    /// Whether the pushes of all workers count together.
    pub const fn is_sync(self) -> bool {
        matches!(self.place, Place::Sync)
    }

    /// Whether the values of one push come from several devices: such a store may compress each of them.
    pub const fn is_device(self) -> bool {
        self.device
    }
}
