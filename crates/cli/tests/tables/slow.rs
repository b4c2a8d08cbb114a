//! What a worker does to find out what fewer bits are worth on a slow link.

use std::process::exit;
use std::time::Instant;

use syncline::{AddOptions, Config, Consistency, Deadline, Error, Session, Spec, Updater};
use syncline_optimizer::Optimizer;
use syncline_tensor::kernels::quantize::Quantizer;

/// Set to the number of parameters: the worker measures and prints.
pub(crate) const PARAMETERS: &str = "TABLES_SLOW_LINK";

/// The body of each test binary's `as_a_rank`.
pub(crate) fn measure_if_asked() {
    let Ok(parameters) = std::env::var(PARAMETERS) else { return };
    let parameters = parameters.parse().expect("the test wrote it");
    match measure(parameters) {
        Ok(()) => exit(0),
        Err(error) => {
            println!("failed: {error}");
            exit(3)
        }
    }
}

fn measure(parameters: usize) -> Result<(), Error> {
    let session = Session::open(Config::from_env()?)?;
    let by = || Deadline::after(session.timeout());
    let sgd = Optimizer::create("sgd", &[("learning_rate", 0.1.into())]).expect("a sound optimizer");
    session.tables().set_rule(0, Some(sgd), false, by())?;
    let spec = Spec::array(parameters as u64).named("model").with_updater(Updater::Gradient).with_consistency(Consistency::Sync);
    let table = session.tables().create_named(spec, None, "here", by())?;
    let gradient: Vec<f32> = (0..parameters).map(|index| (index % 2001) as f32 / 1000.0 - 1.0).collect();
    let bytes: Vec<u8> = gradient.iter().flat_map(|number| number.to_le_bytes()).collect();
    let two_bit = Quantizer::TwoBit { threshold: 0.5 };
    let (mut residual, mut words) = (vec![0.0; parameters], vec![0; two_bit.encoded_len(parameters)]);
    let (mut out, options) = (vec![0; bytes.len()], AddOptions::default());
    let pulls = [("none", None), ("fp16", Some(Quantizer::F16)), ("int8", Some(Quantizer::Int8))];
    // With a push only, the next step waits for the server's word that it is there.
    let mut run = |push: &str, pull: Option<Option<Quantizer>>, steps: u32| -> Result<f64, Error> {
        let started = Instant::now();
        for _ in 0..steps {
            match push {
                "2bit" => {
                    two_bit.encode(&gradient, &mut residual, &mut words).expect("as long as the table");
                    table.add_quantized(&two_bit, &words, &options, pull.is_none(), by())?;
                }
                _ => table.add(&bytes, None, &options, pull.is_none(), by())?,
            }
            match pull {
                Some(Some(code)) => table.get_quantized(&code, &mut out, by())?,
                Some(None) => table.get(&mut out, None, by())?,
                None => {}
            }
        }
        Ok(f64::from(steps) / started.elapsed().as_secs_f64())
    };
    run("2bit", Some(Some(Quantizer::Int8)), 1)?; // the first touches memory that is new
    println!("push none pull - {}", run("none", None, 1)?);
    println!("push 2bit pull - {}", run("2bit", None, 5)?);
    for (name, pull) in pulls {
        println!("push 2bit pull {name} {}", run("2bit", Some(pull), if name == "none" { 1 } else { 3 })?);
    }
    println!("push none pull none {}", run("none", Some(None), 2)?);
    session.shutdown()
}
