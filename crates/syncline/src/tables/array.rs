//! Numbers that move together.

use super::handle::{Handle, described};
use super::whole::moves_whole;

/// An array that all workers read and add to; made by [`Session::array`](crate::Session::array).
///
/// ```
/// use syncline::{AddOptions, Session, Updater};
///
/// let session = Session::solo()?;
/// let weights = session.array::<f32>(2).updater(Updater::MomentumSgd).create()?;
/// weights.add_with(&[1.0, -1.0], &AddOptions { momentum: Some(0.5), ..AddOptions::default() })?;
///
/// let pending = weights.get_async()?; // … compute …
/// assert_eq!(pending.wait()?, [-0.5, 0.5]);
/// # Ok::<(), syncline::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct ArrayTable<T: syncline_tensor::Element> {
    pub(super) handle: Handle<T>,
}

described!(ArrayTable);
moves_whole!(ArrayTable);
