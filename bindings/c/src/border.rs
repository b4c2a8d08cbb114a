//! The border itself: the one place where panics are caught, and what the host of a call may say about it beforehand.

use std::cell::{Cell, RefCell};
use std::ffi::c_int;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use syncline::Deadline;
use syncline::collective::How;

use crate::failure::{Failure, syncline_status};
use crate::memory;

thread_local! {
    /// How many calls this thread is in: a function of the caller's that runs inside of one may make another.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// The number of this thread, which no later one has.
    static THREAD: u64 = {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        NEXT.fetch_add(1, Relaxed)
    };
}

/// Runs one call and turns its outcome into a status. Nothing unwinds out of here.
pub(crate) fn guarded(call: impl FnOnce() -> Result<(), Failure>) -> syncline_status {
    CALLS.set(CALLS.get() + 1);
    let outcome = catch_unwind(AssertUnwindSafe(call));
    CALLS.set(CALLS.get() - 1);
    match outcome {
        Ok(Ok(())) => syncline_status::SYNCLINE_OK,
        Ok(Err(failure)) => failure.remember(),
        Err(panic) => {
            let words = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
            Failure::bug(words.unwrap_or("no reason was given")).remember()
        }
    }
}

type Asked = unsafe extern "C" fn() -> c_int;

/// The host's function as an address; 0 is none.
static ASKED: AtomicUsize = AtomicUsize::new(0);
/// Whether it is 0 that ends a wait.
static ZERO_ENDS: AtomicBool = AtomicBool::new(false);
/// The only thread in which it may be called; 0 is any.
static ASKED_IN: AtomicU64 = AtomicU64::new(0);

/// Calls that wait ask this function, those of any thread or only those of the one that sets it.
pub(crate) fn set_interrupt(asked: Option<Asked>, zero_ends: bool, only_here: bool) {
    ZERO_ENDS.store(zero_ends, Relaxed);
    ASKED_IN.store(if only_here { THREAD.with(|number| *number) } else { 0 }, Relaxed);
    ASKED.store(asked.map_or(0, |asked| asked as usize), Relaxed);
}

pub(crate) fn interrupted() -> bool {
    let address = ASKED.load(Relaxed);
    // Threads of ours carry deadlines on, but only one that the host called from may run its functions: interpreters have one.
    if address == 0 || CALLS.get() == 0 {
        return false;
    }
    let only = ASKED_IN.load(Relaxed);
    if only != 0 && THREAD.with(|number| *number != only) {
        return false;
    }
    // SAFETY: only `set_interrupt` stores here, and it stores the address of a function of this very type.
    let asked = unsafe { std::mem::transmute::<usize, Asked>(address) };
    // SAFETY: the host gave a function that may be called at any time, which is what the header asks for.
    (unsafe { asked() } == 0) == ZERO_ENDS.load(Relaxed)
}

/// `timeout` from now, or until the host wants to end the wait.
pub(crate) fn deadline(timeout: Duration) -> Deadline {
    ask_host(Deadline::after(timeout))
}

/// As long as it takes, or until the host wants to end the wait.
pub(crate) fn no_deadline() -> Deadline {
    ask_host(Deadline::never())
}

/// `seconds` from now, or as long as it takes where it is 0; or until the host wants to end the wait.
pub(crate) fn until(seconds: f64) -> Result<Deadline, Failure> {
    Ok(memory::patience(seconds)?.map_or_else(no_deadline, deadline))
}

fn ask_host(deadline: Deadline) -> Deadline {
    if ASKED.load(Relaxed) == 0 { deadline } else { deadline.with_interrupt(interrupted) }
}

thread_local! {
    static SITE: RefCell<Option<String>> = const { RefCell::new(None) };
}

pub(crate) fn set_site(site: Option<String>) {
    SITE.set(site);
}

/// Lends where the caller's program stands.
pub(crate) fn with_site<T>(call: impl FnOnce(&str) -> T) -> T {
    // Taken out meanwhile: a function of the user's that runs inside may say where it stands itself.
    let site = SITE.take();
    let result = call(site.as_deref().unwrap_or("a program in C"));
    SITE.with_borrow_mut(|now| {
        if now.is_none() {
            *now = site;
        }
    });
    result
}

/// Runs a collective call with the caller's place and `timeout`.
pub(crate) fn call_as<T>(timeout: Duration, call: impl FnOnce(How<'_>) -> T) -> T {
    with_site(|site| call(How { site, by: deadline(timeout) }))
}

#[cfg(test)]
mod tests {
    use std::ffi::CStr;

    use super::*;
    use crate::failure::{syncline_last_error, syncline_last_error_kind};

    fn last_words() -> String {
        // SAFETY: a text of this thread's, which no failure replaces before it is copied.
        unsafe { CStr::from_ptr(syncline_last_error()) }.to_str().expect("text").to_owned()
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_words_and_goes_no_further() {
        let number = 42;
        let panics: [Box<dyn FnOnce()>; 3] =
            [Box::new(|| panic!("plain words")), Box::new(move || panic!("made of {number}")), Box::new(|| std::panic::panic_any(7))];
        for (panic, words) in panics.into_iter().zip(["plain words", "made of 42", "no reason was given"]) {
            let status = guarded(|| {
                panic();
                Ok(())
            });
            assert_eq!((status, syncline_last_error_kind()), (syncline_status::SYNCLINE_BUG, syncline_status::SYNCLINE_BUG));
            assert_eq!(last_words(), format!("a bug in Syncline: {words}"));
        }
    }

    #[test]
    fn after_a_panic_the_thread_is_in_no_call_and_the_next_one_works() {
        assert_eq!(guarded(|| guarded_panic_inside().map(drop)), syncline_status::SYNCLINE_OK);
        assert_eq!(CALLS.get(), 0);
        assert_eq!(guarded(|| Err(Failure::argument("another"))), syncline_status::SYNCLINE_ARGUMENT);
        assert_eq!(last_words(), "another");
    }

    /// A call that a function of the caller's makes from inside of another.
    fn guarded_panic_inside() -> Result<syncline_status, Failure> {
        assert_eq!(CALLS.get(), 1);
        let status = guarded(|| panic!("inside"));
        assert_eq!((status, CALLS.get()), (syncline_status::SYNCLINE_BUG, 1));
        Ok(status)
    }
}
