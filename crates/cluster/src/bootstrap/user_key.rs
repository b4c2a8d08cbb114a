//! The user's key: 32 random bytes that only this user can read, from which the tokens of jobs are derived.
//!
//! It is made once, by whichever process needs it first. Ranks that start at the same moment agree on one key, because a file
//! gets its name only when it is complete and a name can be given only once.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::TokenError;
use super::private_file::{self, Found};

const BYTES: usize = 32;

/// The user's key, created if there is none.
pub(super) fn read_or_create(path: &Path) -> Result<[u8; BYTES], TokenError> {
    let io = |action| move |source| TokenError::Io { action, path: path.to_owned(), source };
    // The second round reads what was created, by us or by a faster rank.
    for _ in 0..2 {
        match private_file::read(path, BYTES as u64).map_err(io("read"))? {
            Found::Private(bytes) => {
                return bytes.try_into().map_err(|bytes: Vec<u8>| TokenError::Unsafe {
                    path: path.to_owned(),
                    problem: format!("holds {} bytes instead of {BYTES}", bytes.len()),
                    hint: "remove it".into(),
                });
            }
            Found::Unsafe { problem, hint } => return Err(TokenError::Unsafe { path: path.to_owned(), problem, hint }),
            Found::Nothing => {
                refuse_anothers_home(path)?;
                private_file::make_folder(path).map_err(io("make a folder for"))?;
                let mut key = [0u8; BYTES];
                getrandom::fill(&mut key).map_err(|error| TokenError::NoRandomness(error.to_string()))?;
                private_file::create(path, &key).map_err(io("create"))?;
            }
        }
    }
    Err(io("keep")(std::io::Error::other("it vanished after it was made")))
}

/// Root with another user's `HOME` (sudo) must not leave a key there that its owner cannot read.
fn refuse_anothers_home(path: &Path) -> Result<(), TokenError> {
    let me = rustix::process::geteuid().as_raw();
    let nearest = path.ancestors().skip(1).find_map(|folder| fs::metadata(folder).ok());
    match nearest {
        Some(folder) if me == 0 && folder.uid() != 0 => Err(TokenError::Unsafe {
            path: path.to_owned(),
            problem: format!("would lie in a folder of user {}, but root runs this", folder.uid()),
            hint: "set HOME to root's own folder".into(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn racing_ranks_agree_on_one_key() {
        for _ in 0..50 {
            let home = tempfile::tempdir().unwrap();
            let path = home.path().join("config/syncline/key");
            let start = Barrier::new(4);
            let keys: Vec<[u8; BYTES]> = std::thread::scope(|scope| {
                let ranks: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            start.wait();
                            read_or_create(&path).unwrap()
                        })
                    })
                    .collect();
                ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
            });
            assert!(keys.iter().all(|key| *key == keys[0]));
            assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1, "nothing but the key is left");
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_key_that_others_can_read_is_refused_by_name() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        read_or_create(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let error = read_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("mode 644") && error.contains("chmod 600") && error.contains("SYNCLINE_TOKEN"), "{error}");
    }

    #[test]
    fn a_key_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: only root can give a file to another user");
            return;
        }
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        read_or_create(&path).unwrap();
        std::os::unix::fs::chown(&path, Some(12345), None).unwrap();
        let error = read_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("belongs to user 12345"), "{error}");
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::chown(home.path(), Some(12345), None).unwrap();
        let error = read_or_create(&path).unwrap_err().to_string();
        assert!(error.contains("folder of user 12345") && !path.exists(), "{error}");
    }

    #[test]
    fn a_damaged_key_is_refused_and_an_unusable_folder_is_named() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        private_file::create(&path, b"short").unwrap();
        assert!(read_or_create(&path).unwrap_err().to_string().contains("5 bytes instead of 32"));
        let below_a_file = path.join("syncline/key");
        let error = read_or_create(&below_a_file).unwrap_err().to_string();
        assert!(error.contains("SYNCLINE_TOKEN"), "{error}");
    }
}
