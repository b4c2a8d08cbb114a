//! A server that hands out work and clients that do it: threads here, processes or machines just as well.
//!
//! `cargo run -q -p syncline --example client_server`
//!
//! Each client gets rows of a matrix and sends back the sum of each. The answer to a part is the demand for the next, so a fast client
//! gets more of them.

use std::thread;

use syncline::ipc::{Client, DType, Error, Options, Place, Server, Shape, Value};

const CLIENTS: usize = 3;
const PARTS: usize = 12;
const ROWS: usize = 4;
const COLUMNS: usize = 1000;

fn main() -> Result<(), Error> {
    let options = Options::default(); // programs of one user on one host share a token without being told
    let server = Server::open(&Place::tcp("127.0.0.1", 0), &options)?;
    let place = server.place();
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(|| work(&place, &options))).collect();
        let sums = hand_out(&server)?;
        let shares: Vec<usize> = clients.into_iter().map(|client| client.join().expect("no panic")).collect::<Result<_, _>>()?;
        assert_eq!(shares.iter().sum::<usize>(), PARTS);
        let expected: Vec<f64> = (0..PARTS * ROWS).map(|row| (row * COLUMNS) as f64).collect();
        assert_eq!(sums, expected);
        println!("{} rows summed by {CLIENTS} clients", sums.len());
        Ok(())
    })
}

/// Gives each client a part and the next one for each answer; returns the sum of every row.
fn hand_out(server: &Server) -> Result<Vec<f64>, Error> {
    let part = |number: usize| {
        let numbers: Vec<u8> = (0..ROWS * COLUMNS).flat_map(|at| ((number * ROWS + at / COLUMNS) as f32).to_le_bytes()).collect();
        let rows = Value::tensor(DType::F32, Shape::new(&[ROWS, COLUMNS]).expect("small"), numbers).expect("as long as its shape");
        Value::List(vec![Value::Int(number as i64), rows])
    };
    let mut next = 0;
    server.clients(CLIENTS, |client| {
        next += 1;
        client.send(&part(next - 1))
    })?;
    let mut sums = vec![0.0; PARTS * ROWS];
    for _ in 0..PARTS {
        let (answer, client) = server.recv_any(None)?;
        if let Value::List(answer) = answer
            && let [Value::Int(number), Value::List(found)] = answer.as_slice()
        {
            for (row, sum) in found.iter().enumerate() {
                if let Value::Float(sum) = sum {
                    sums[*number as usize * ROWS + row] = *sum;
                }
            }
        }
        if next < PARTS {
            client.send(&part(next))?;
            next += 1;
        }
    }
    server.broadcast(&Value::Nil, None)?; // no more
    Ok(sums)
}

/// Sums rows until there are none; returns how many parts that were.
fn work(place: &Place, options: &Options) -> Result<usize, Error> {
    let client = Client::connect(place, options)?;
    let mut parts = 0;
    while let Value::List(part) = client.recv()? {
        let [Value::Int(number), Value::Tensor(rows)] = part.as_slice() else { break };
        let sum =
            |row: &[u8]| row.chunks_exact(4).map(|bytes| f64::from(f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))).sum();
        let sums: Vec<Value<'_>> = rows.data().chunks_exact(COLUMNS * 4).map(|row| Value::Float(sum(row))).collect();
        client.send(&Value::List(vec![Value::Int(*number), Value::List(sums)]))?;
        parts += 1;
    }
    Ok(parts)
}
