//! syncline
