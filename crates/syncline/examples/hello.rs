//! The smallest job: who am I, how many are we, and one moment when all of us are here.
//!
//! `syncline run -n 4 cargo run -q -p syncline --example hello`

use syncline::{Config, Error, Session};

fn main() -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    println!("rank {} of {}", session.rank(), session.size());
    session.barrier()?;
    if session.rank() == 0 {
        print!("{}", session.topology());
    }
    session.shutdown()
}
