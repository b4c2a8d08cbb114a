//! Who sits where, as Python sees it.

use pyo3::prelude::*;

/// The members of the job grouped by host; `print()` draws it.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct Topology {
    /// The hosts of the job, ordered by their lowest rank.
    #[pyo3(get)]
    hosts: Vec<Py<Host>>,
    picture: String,
}

/// One machine of the job.
#[pyclass(frozen, module = "syncline")]
pub(crate) struct Host {
    /// What the machine calls itself.
    #[pyo3(get)]
    name: String,
    /// Its ranks, ascending.
    #[pyo3(get)]
    ranks: Vec<u32>,
}

impl Topology {
    pub(crate) fn new(py: Python<'_>, topology: &syncline::Topology) -> PyResult<Self> {
        let hosts = topology
            .hosts()
            .iter()
            .map(|host| Py::new(py, Host { name: host.name.clone(), ranks: host.ranks.clone() }))
            .collect::<PyResult<_>>()?;
        Ok(Topology { hosts, picture: topology.to_string().trim_end().to_owned() })
    }
}

#[pymethods]
impl Topology {
    fn __str__(&self) -> &str {
        &self.picture
    }

    fn __repr__(&self) -> String {
        format!("<syncline.Topology: {}>", self.picture.lines().next().unwrap_or_default())
    }
}

#[pymethods]
impl Host {
    fn __repr__(&self) -> String {
        format!("Host(name={:?}, ranks={:?})", self.name, self.ranks)
    }
}
