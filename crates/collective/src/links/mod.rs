//! Runs plans over links.
