//! Replays a story of bindings/scenarios in Rust: replay STORY
//!
//! One function for each kind of line; what a line means is told in the README there.

use std::collections::HashMap;
use std::process::ExitCode;
use std::time::Duration;

use syncline::collective::How;
use syncline::ipc::{Channel, ChannelOptions, Family, Shape, Status, Workqueue};
use syncline::kvstore::{KvStore, Optimizer, OptionValue, Tensor};
use syncline::{AddOptions, Config, Consistency, DType, Deadline, ErrorKind, ReduceOp, Session, Spec, Table, Tree, Updater, Value};

/// Why a line did not go as the story says.
enum Trouble {
    /// A call of Syncline's failed.
    Call(ErrorKind, String),
    /// It answered something else.
    Story(String),
}

impl From<syncline::Error> for Trouble {
    fn from(error: syncline::Error) -> Trouble {
        Trouble::Call(error.kind(), error.to_string())
    }
}

/// What tables and other lower layers answer.
impl From<syncline::collective::Error> for Trouble {
    fn from(error: syncline::collective::Error) -> Trouble {
        syncline::Error::from(error).into()
    }
}

impl From<syncline::ipc::Error> for Trouble {
    fn from(error: syncline::ipc::Error) -> Trouble {
        Trouble::Call(error.kind(), error.to_string())
    }
}

type Told<T = ()> = Result<T, Trouble>;

fn story<T>(text: impl Into<String>) -> Told<T> {
    Err(Trouble::Story(text.into()))
}

/// The name of a kind in stories, which is that of the exception in other languages.
fn kind_name(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::Configuration => "ConfigurationError".into(),
        ErrorKind::Auth => "AuthError".into(),
        other => format!("{other:?}"),
    }
}

fn numbers(words: &[&str]) -> Told<Vec<f64>> {
    words.iter().map(|word| word.parse().or_else(|_| story(format!("{word} is no number")))).collect()
}

fn ids(word: &str) -> Told<Vec<i64>> {
    word.split(',').map(|word| word.parse().or_else(|_| story(format!("{word} is no id")))).collect()
}

fn split_at<'a, 'b>(words: &'a [&'b str], sign: &str) -> Told<(&'a [&'b str], &'a [&'b str])> {
    let place = words.iter().position(|word| *word == sign);
    place.map_or_else(|| story(format!("there is no {sign}")), |place| Ok((&words[..place], &words[place + 1..])))
}

fn same(got: &[f64], wanted: &[f64]) -> Told {
    if got == wanted { Ok(()) } else { story(format!("{got:?} should be {wanted:?}")) }
}

/// Numbers of a story as those of a table.
fn stored(numbers: &[f64], dtype: DType) -> Told<Vec<u8>> {
    let each = |number: &f64| match dtype {
        DType::F32 => Ok((*number as f32).to_le_bytes().to_vec()),
        DType::F64 => Ok(number.to_le_bytes().to_vec()),
        DType::I32 => Ok((*number as i32).to_le_bytes().to_vec()),
        DType::I64 => Ok((*number as i64).to_le_bytes().to_vec()),
        other => story(format!("stories do not use {other}")),
    };
    Ok(numbers.iter().map(each).collect::<Told<Vec<_>>>()?.concat())
}

/// And back.
fn loaded(bytes: &[u8], dtype: DType) -> Told<Vec<f64>> {
    let each = |bytes: &[u8]| match (dtype, <[u8; 4]>::try_from(bytes), <[u8; 8]>::try_from(bytes)) {
        (DType::F32, Ok(four), _) => Ok(f64::from(f32::from_le_bytes(four))),
        (DType::I32, Ok(four), _) => Ok(f64::from(i32::from_le_bytes(four))),
        (DType::F64, _, Ok(eight)) => Ok(f64::from_le_bytes(eight)),
        (DType::I64, _, Ok(eight)) => Ok(i64::from_le_bytes(eight) as f64),
        _ => story(format!("stories do not use {dtype}")),
    };
    bytes.chunks_exact(dtype.size()).map(each).collect()
}

fn array(numbers: &[f64]) -> Told<Value<'static>> {
    let shape = Shape::new(&[numbers.len()]).or_else(|error| story(error.to_string()))?;
    Value::tensor(DType::F64, shape, stored(numbers, DType::F64)?).or_else(|error| story(error.to_string()))
}

fn numbers_of(value: &Value<'_>) -> Told<Vec<f64>> {
    match value {
        Value::Tensor(tensor) => loaded(tensor.data(), tensor.dtype()),
        other => story(format!("a {} came", other.type_name())),
    }
}

fn times(numbers: &[f64], factor: f64) -> Vec<f64> {
    numbers.iter().map(|number| number * factor).collect()
}

fn operation(name: &str) -> Told<ReduceOp> {
    ReduceOp::ALL.into_iter().find(|known| known.name() == name).map_or_else(|| story("an unknown operation"), Ok)
}

/// This node's equal part; the first nodes take the remainder.
fn part_of<'n>(tree: &Tree, numbers: &'n [f64]) -> &'n [f64] {
    let (nodes, before) = (tree.nodes() as usize, tree.node() as usize - 1);
    let (each, more) = (numbers.len() / nodes, numbers.len() % nodes);
    &numbers[before * each + before.min(more)..][..each + usize::from(before < more)]
}

/// What some rows, or all, of a table take.
fn bytes_of(table: &Table, rows: Option<&[i64]>) -> usize {
    let (all, cols) = table.spec().rows_and_cols().unwrap_or_default();
    rows.map_or(all as usize, <[i64]>::len) * cols as usize * table.spec().dtype().size()
}

/// Everything that the lines so far have made.
struct Stage {
    session: Session,
    tables: HashMap<String, Table>,
    store: Option<KvStore>,
    family: Option<Family>,
    channels: HashMap<String, Channel>,
    queues: HashMap<String, Workqueue>,
}

impl Stage {
    fn soon(&self) -> Deadline {
        Deadline::after(self.session.timeout())
    }

    /// n … + m …: n + W·m.
    fn expected(&self, words: &[&str]) -> Told<Vec<f64>> {
        let (base, each) = split_at(words, "+")?;
        let workers = f64::from(self.session.num_workers());
        Ok(numbers(base)?.iter().zip(numbers(each)?).map(|(base, each)| base + workers * each).collect())
    }

    fn table(&self, name: &str) -> Told<&Table> {
        self.tables.get(name).map_or_else(|| story(format!("there is no table {name}")), Ok)
    }

    fn perform(&mut self, words: &[&str]) -> Told {
        match words {
            ["array", name, updater, dtype, values @ ..] => {
                let values = numbers(values)?;
                self.make(Spec::array(values.len() as u64), name, updater, dtype, Some(&values))
            }
            ["matrix", name, updater, dtype, rows, cols] => {
                let size = numbers(&[rows, cols])?;
                self.make(Spec::matrix(size[0] as u64, size[1] as u64), name, updater, dtype, None)
            }
            ["add", name, values @ ..] => self.add(name, &numbers(values)?, None),
            ["add_rows", name, rows, values @ ..] => self.add(name, &numbers(values)?, Some(&ids(rows)?)),
            ["get", name, wanted @ ..] => same(&self.get(name, None)?, &self.expected(wanted)?),
            ["get_rows", name, rows, wanted @ ..] => same(&self.get(name, Some(&ids(rows)?))?, &self.expected(wanted)?),
            ["walk", name, steps] => self.walk(name, numbers(&[steps])?[0] as usize),
            ["bits", name] => {
                let mut bytes = vec![0; bytes_of(self.table(name)?, None)];
                self.table(name)?.get(&mut bytes, None, self.soon())?;
                let bits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                println!("bits {name} {bits}");
                Ok(())
            }
            ["barrier"] => Ok(self.session.barrier()?),
            ["reduce", op, rest @ ..] => {
                let (mine, wanted) = split_at(rest, "=")?;
                let op = operation(op)?;
                let how = How { site: "a story", by: self.soon() };
                let (reduced, _) =
                    self.session.tree()?.all_reduce_value(Some(array(&numbers(mine)?)?), syncline::Reduce::By(op), None, how)?;
                same(&numbers_of(&reduced)?, &self.expected(wanted)?)
            }
            ["reduce_scatter", op, rest @ ..] => {
                let (mine, wanted) = split_at(rest, "=")?;
                let tree = self.session.tree()?;
                same(&tree.reduce_scatter(&numbers(mine)?, operation(op)?)?, part_of(&tree, &self.expected(wanted)?))
            }
            ["broadcast" | "gather" | "all_gather" | "all_to_all" | "meet", ..] => self.gather_round(words),
            ["store" | "rule" | "init" | "push" | "pull", ..] => self.keep(words),
            ["channel" | "write" | "read" | "queue" | "ask" | "work" | "drain" | "answers" | "close", ..] => self.pass(words),
            other => story(format!("what is {}?", other.join(" "))),
        }
    }

    fn make(&mut self, spec: Spec, name: &str, updater: &str, dtype: &str, values: Option<&[f64]>) -> Told {
        let dtype = DType::from_name(dtype).or_else(|error| story(error.to_string()))?;
        let consistency = Consistency::new(self.session.sync(), None);
        let spec = spec.with_dtype(dtype).with_updater(Updater::from_name(updater)?).with_consistency(consistency).named(name);
        let initial = values.map(|values| stored(values, dtype)).transpose()?;
        let table = self.session.create_table(spec, initial.as_deref())?;
        self.tables.insert(name.to_owned(), table);
        Ok(())
    }

    fn add(&self, name: &str, values: &[f64], rows: Option<&[i64]>) -> Told {
        let table = self.table(name)?;
        let delta = stored(values, table.spec().dtype())?;
        Ok(table.add(&delta, rows, &AddOptions::default(), !self.session.sync(), self.soon())?)
    }

    fn get(&self, name: &str, rows: Option<&[i64]>) -> Told<Vec<f64>> {
        let table = self.table(name)?;
        let mut out = vec![0; bytes_of(table, rows)];
        table.get(&mut out, rows, self.soon())?;
        loaded(&out, table.spec().dtype())
    }

    fn walk(&self, name: &str, steps: usize) -> Told {
        let count = self.get(name, None)?.len();
        let worker = f64::from(self.session.worker_id().unwrap_or(0) + 1);
        for step in 1..=steps {
            self.add(name, &vec![0.1 * worker * step as f64; count], None)?;
            self.get(name, None)?;
        }
        Ok(())
    }

    /// What trees do beside reductions; node k brings k times the numbers.
    fn gather_round(&self, words: &[&str]) -> Told {
        let tree = self.session.tree()?;
        let how = How { site: "a story", by: self.soon() };
        let (node, nodes) = (f64::from(tree.node()), tree.nodes());
        let by_node = |all: &[Value<'_>], given: &[f64]| {
            (1..=nodes).zip(all).try_for_each(|(from, value)| same(&numbers_of(value)?, &times(given, f64::from(from))))
        };
        match words {
            ["broadcast", root, given @ ..] => {
                let (given, root) = (numbers(given)?, self.root(&tree, root)?);
                let received = tree.broadcast_value(&array(&times(&given, node))?, root, how)?;
                same(&numbers_of(&received)?, &times(&given, f64::from(root)))
            }
            ["gather", root, given @ ..] => {
                let (given, root) = (numbers(given)?, self.root(&tree, root)?);
                match (tree.gather_value(&array(&times(&given, node))?, root, how)?, tree.node() == root) {
                    (Some(all), true) => by_node(&all, &given),
                    (None, false) => Ok(()),
                    _ => story("what was gathered is at another node"),
                }
            }
            ["all_gather", given @ ..] => {
                let given = numbers(given)?;
                by_node(&tree.all_gather_value(&array(&times(&given, node))?, how)?, &given)
            }
            ["all_to_all", given @ ..] => {
                let given = numbers(given)?;
                let parts = (1..=nodes).map(|to| array(&times(&given, node * f64::from(to)))).collect::<Told<Vec<_>>>()?;
                by_node(&tree.all_to_all_value(&parts, how)?, &times(&given, node))
            }
            _ => Ok(tree.barrier()?),
        }
    }

    fn root(&self, tree: &Tree, word: &str) -> Told<u32> {
        Ok(if word == "last" { tree.nodes() } else { numbers(&[word])?[0] as u32 })
    }

    /// The key-value store.
    fn keep(&mut self, words: &[&str]) -> Told {
        if let ["store", kind] = words {
            let store = if kind.starts_with("dist") { self.session.kvstore(kind)? } else { KvStore::local(kind)? };
            self.store = Some(store);
            return Ok(());
        }
        let Some(store) = &self.store else { return story("there is no store") };
        let tensor = |words: &[&str]| {
            let numbers: Vec<f32> = numbers(words)?.into_iter().map(|number| number as f32).collect();
            Tensor::from_slice(&[numbers.len()], &numbers).or_else(|error| story(error.to_string()))
        };
        match words {
            ["rule", name, options @ ..] => {
                let options = options.iter().map(|option| {
                    let (name, value) = option.split_once('=').unwrap_or((option, ""));
                    Ok((name, OptionValue::from(numbers(&[value])?[0])))
                });
                let options = options.collect::<Told<Vec<_>>>()?;
                Ok(store.set_optimizer(Optimizer::create(name, &options).or_else(|error| story(error.to_string()))?)?)
            }
            ["init", key, values @ ..] => Ok(store.init(*key, &tensor(values)?)?),
            ["push", key, values @ ..] => Ok(store.push(*key, &tensor(values)?)?),
            ["pull", key, wanted @ ..] => {
                let wanted: Vec<f64> = self.expected(wanted)?.into_iter().map(|number| f64::from(number as f32)).collect();
                let pulled = store.pull(*key)?;
                let pulled = pulled.as_slice::<f32>().or_else(|error| story(error.to_string()))?;
                same(&pulled.iter().map(|number| f64::from(*number)).collect::<Vec<_>>(), &wanted)
            }
            other => story(format!("what is {}?", other.join(" "))),
        }
    }

    fn family(&mut self) -> Told<Family> {
        if self.family.is_none() {
            self.family = Some(Family::alone()?);
        }
        self.family.clone().map_or_else(|| story("there is no family"), Ok)
    }

    /// Channels and workqueues.
    fn pass(&mut self, words: &[&str]) -> Told {
        let soon = self.soon();
        let named = |name: &str| Trouble::Story(format!("there is no {name}"));
        let items = |words: &[&str]| Ok::<_, Trouble>(numbers(words)?.into_iter().map(Value::Float).collect::<Vec<_>>());
        match words {
            ["channel", name, capacity] => {
                let capacity = Some(numbers(&[capacity])?[0] as usize).filter(|capacity| *capacity > 0);
                let channel = Channel::with(&self.family()?, ChannelOptions { capacity, leases: false })?;
                self.channels.insert((*name).to_owned(), channel);
                Ok(())
            }
            ["queue", name] => {
                let queue = Workqueue::new(&self.family()?)?;
                self.queues.insert((*name).to_owned(), queue);
                Ok(())
            }
            ["write", name, state, values @ ..] => {
                let channel = self.channels.get(*name).ok_or_else(|| named(name))?;
                status(channel.write_all(&items(values)?, soon)?, state)
            }
            ["read", name, state, wanted @ ..] => {
                let channel = self.channels.get(*name).ok_or_else(|| named(name))?;
                let read = if wanted.is_empty() { channel.try_read()? } else { channel.read(soon)? };
                status(read.status, state)?;
                let wanted = items(wanted)?.pop();
                if read.item == wanted { Ok(()) } else { story(format!("{:?} should be {wanted:?}", read.item)) }
            }
            ["close", name] => match (self.channels.get(*name), self.queues.get(*name)) {
                (Some(channel), _) => Ok(channel.close()?),
                (None, Some(queue)) => Ok(queue.close()?),
                _ => Err(named(name)),
            },
            [command, name, values @ ..] => {
                let queue = self.queues.get(*name).ok_or_else(|| named(name))?;
                match *command {
                    "ask" => Ok(queue.write_all(&items(values)?, soon)?),
                    "drain" => Ok(queue.drain(soon)?),
                    "work" => {
                        let factor = numbers(values)?[0];
                        let (worker, by) = (queue.clone(), soon);
                        let answered = std::thread::spawn(move || answer_all(&worker, factor, by)).join();
                        answered.unwrap_or_else(|_| story("the worker panicked"))
                    }
                    "answers" => numbers(values)?.into_iter().try_for_each(|wanted| match queue.read(soon)?.item() {
                        Some(item) if *item.value() == Value::Float(wanted) => Ok(()),
                        other => story(format!("{other:?} should be {wanted}")),
                    }),
                    other => story(format!("what is {other}?")),
                }
            }
            other => story(format!("what is {}?", other.join(" "))),
        }
    }
}

/// Answers every question with so many times its number, until there are no more.
fn answer_all(queue: &Workqueue, factor: f64, by: Deadline) -> Told {
    while let Some(question) = queue.read(by)?.item() {
        let Value::Float(number) = *question.value() else { return story("a question that is no number") };
        question.answer(&Value::Float(number * factor), by)?;
    }
    Ok(())
}

fn status(got: Status, wanted: &str) -> Told {
    let name = match got {
        Status::Open => "open",
        Status::Closed => "closed",
        Status::Drained => "drained",
    };
    if name == wanted { Ok(()) } else { story(format!("the channel is {name}, and should be {wanted}")) }
}

fn replay(text: &str) -> Result<(), (usize, String)> {
    let mut stage: Option<Stage> = None;
    for (index, line) in text.lines().enumerate() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let outcome = match (&words[..], &mut stage) {
            ([] | ["#" | "for", ..], _) => Ok(()),
            (["mode", mode], None) => open(*mode == "sync").map(|opened| stage = Some(opened)),
            (["fails", kind, rest @ ..], Some(stage)) => match stage.perform(rest) {
                Err(Trouble::Call(got, _)) if kind_name(got) == *kind => Ok(()),
                Err(Trouble::Call(got, text)) => story(format!("it failed with {}: {text}", kind_name(got))),
                Err(trouble) => Err(trouble),
                Ok(()) => story("it worked"),
            },
            (words, Some(stage)) => stage.perform(words),
            (_, None) => story("a story begins with its mode"),
        };
        outcome.map_err(|trouble| match trouble {
            Trouble::Call(_, text) | Trouble::Story(text) => (index + 1, text),
        })?;
    }
    if let Some(stage) = stage {
        let Stage { session, tables, store, .. } = stage;
        drop((tables, store));
        session.shutdown().map_err(|error| (text.lines().count(), error.to_string()))?;
    }
    Ok(())
}

fn open(sync: bool) -> Told<Stage> {
    let config = Config::from_env()?.sync(sync).timeout(Duration::from_secs(30));
    let session = Session::open(config)?;
    Ok(Stage { session, tables: HashMap::new(), store: None, family: None, channels: HashMap::new(), queues: HashMap::new() })
}

fn main() -> ExitCode {
    let path = std::env::args().nth(1).unwrap_or_default();
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) => {
            eprintln!("replay STORY: {path}: {error}");
            return ExitCode::from(2);
        }
    };
    match replay(&text) {
        Ok(()) => {
            println!("replayed");
            ExitCode::SUCCESS
        }
        Err((line, why)) => {
            eprintln!("{path}:{line}: {why}");
            ExitCode::FAILURE
        }
    }
}
