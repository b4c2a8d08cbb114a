//! Jobs under the real Slurm: several nodes on one host, and nodes that are hosts of their own.
//!
//! Slurm runs in a place of its own for the time of each test (`syncline_testkit::slurm`): up in half a second, gone whatever happens. Where it
//! is not installed, or without root, each test says `skipped`.

mod field;
mod slurm_trees;

use std::process::exit;
use std::time::{Duration, Instant};

use field::LIMIT;
use field::program::{Line, Program, fact, rank_words};
use field::rank::{MARK, PLAY};
use syncline::bootstrap::{Environment, tree};
use syncline::{AddOptions, Config, Deadline, Error, ReduceOp, Session, Settings, Spec};
use syncline_cluster::Job;
use syncline_testkit::slurm::Slurm;

/// What a task of these tests does, beside the parts of the field.
#[test]
fn as_a_rank() {
    let outcome = match std::env::var(PLAY).as_deref() {
        Ok("work") => work(),
        Ok("wait") => wait_for_a_death(),
        Ok("tree") => grow_a_tree(),
        Ok("sums") => slurm_trees::add_up(),
        _ => return field::rank::play_if_asked(),
    };
    if let Err(error) = outcome {
        let rank = error.who().map_or("-".to_owned(), |who| who.rank.to_string());
        println!("\n{MARK}lost me={} kind={:?} rank={rank} text={:?}", variable("SLURM_PROCID"), error.kind(), error.to_string());
        exit(3);
    }
    exit(0);
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or("-".into())
}

/// Joins and says who is there.
fn join() -> Result<Session, Error> {
    let config = Config::from_env()?;
    let (meeting, epoch) = (config.launch().meeting.to_string(), config.launch().epoch);
    let session = Session::open(config)?;
    let hosts = session.topology().hosts().iter().map(|host| {
        let ranks: Vec<String> = host.ranks.iter().map(u32::to_string).collect();
        format!("{}:{}", host.name, ranks.join(","))
    });
    println!(
        "\n{MARK}joined rank={} size={} launcher={} epoch={epoch} hosts={} meeting={meeting} pid={} node={} task={} job={}",
        session.rank(),
        session.size(),
        session.launcher(),
        hosts.collect::<Vec<_>>().join("|"),
        std::process::id(),
        variable("SLURM_NODEID"),
        variable("SLURM_LOCALID"),
        variable("SLURM_JOB_ID"),
    );
    Ok(session)
}

/// A table and a sum over all workers, which only come out right if everybody took part once.
fn work() -> Result<(), Error> {
    let session = join()?;
    let by = || Deadline::after(session.timeout());
    let table = session.create_table(Spec::array(1000), None)?;
    let mine: Vec<u8> = (0..1000u32).flat_map(|index| ((session.rank() + 1 + index) as f32).to_le_bytes()).collect();
    table.add(&mine, None, &AddOptions::default(), false, by())?;
    session.barrier()?;
    let mut bytes = vec![0; 4000];
    table.get(&mut bytes, None, by())?;
    let mut sums = mine.clone();
    session.aggregate_bytes(&mut sums, syncline::DType::F32, ReduceOp::Sum, by())?;
    let first = |bytes: &[u8]| f32::from_le_bytes(bytes[..4].try_into().expect("four bytes"));
    println!("\n{MARK}worked rank={} table={} sum={}", session.rank(), first(&bytes), first(&sums));
    session.shutdown()
}

/// A tree of the step's tasks: alone, or beside a session of the same step.
fn grow_a_tree() -> Result<(), Error> {
    let session = (variable("BESIDE") == "session").then(join).transpose()?;
    let folder = std::env::var_os("FOLDER").map(std::path::PathBuf::from);
    let node = tree::slurm(&Environment::current(), folder.as_deref(), 1).expect("a task of a step");
    let by = || Deadline::after(Duration::from_secs(15));
    let job = Job::join(&node.launch, &Settings::default(), by())?;
    job.barrier(by())?;
    println!("\n{MARK}tree rank={} size={} gpu={} meeting={}", job.rank(), job.world(), node.gpu, node.launch.meeting);
    job.leave(by())?;
    session.map_or(Ok(()), |session| session.shutdown())
}

fn wait_for_a_death() -> Result<(), Error> {
    let session = join()?;
    loop {
        session.barrier()?;
        std::thread::park_timeout(Duration::from_millis(1)); // leaves the cores to others; nothing depends on it
    }
}

/// A cluster of nodes on one host, or a word why there is none.
fn nodes(count: usize) -> Option<Slurm> {
    Slurm::on_one_host(count).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

/// A cluster of hosts, or a word why there is none.
fn hosts(count: usize) -> Option<Slurm> {
    Slurm::on_hosts(count).inspect_err(|reason| println!("skipped: {reason}")).ok()
}

fn words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

/// Starts ranks that play `part` under the words of a launcher.
fn start(slurm: &Slurm, launcher: &str, part: &str) -> Program {
    let all = [words("timeout 60"), words(launcher), rank_words()].concat();
    let mut command = slurm.command(&all);
    command.env(PLAY, part).env("RUST_BACKTRACE", "0").env("SYNCLINE_TIMEOUT", "15");
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    let mut program = Program::start(launcher, command);
    program.close_stdin();
    program
}

/// What the ranks of one job said when they joined, in order of rank; their sums are checked on the way.
fn job(slurm: &Slurm, launcher: &str, world: usize) -> Vec<String> {
    let mut program = start(slurm, launcher, "work");
    program.succeed(LIMIT);
    let joined = in_order(program.said("joined"), "rank");
    assert_eq!((joined.len(), program.said("worked").len()), (world, world), "{}", program.transcript());
    let sum = (world * (world + 1) / 2).to_string();
    for line in program.said("worked") {
        assert_eq!((fact(&line.text, "table"), fact(&line.text, "sum")), (sum.as_str(), sum.as_str()), "{launcher}: {}", line.text);
    }
    for (rank, line) in joined.iter().enumerate() {
        assert_eq!((fact(line, "rank"), fact(line, "size")), (rank.to_string().as_str(), world.to_string().as_str()), "{launcher}");
    }
    joined
}

fn in_order(lines: Vec<Line>, number: &str) -> Vec<String> {
    let mut lines: Vec<String> = lines.into_iter().map(|line| line.text).collect();
    lines.sort_by_key(|line| fact(line, number).parse::<u32>().expect("a number"));
    lines
}

/// The places that tasks have, as `node.task`.
fn places(joined: &[String]) -> String {
    joined.iter().map(|line| format!("{}.{}", fact(line, "node"), fact(line, "task"))).collect::<Vec<_>>().join(" ")
}

/// Every file below the shared home but the user's key.
fn files_left(slurm: &Slurm) -> String {
    slurm.shell("find $HOME -type f -not -path '*/.config/syncline/key'")
}

#[test]
fn steps_of_every_shape_are_one_job_each_and_leave_no_file() {
    let Some(slurm) = nodes(4) else { return };
    let cases = [
        ("-N 1 -n 2", "0.0 0.1", "unix:@"),
        ("-N 2 -n 4", "0.0 0.1 1.0 1.1", "file:"),
        ("-N 2 -n 3", "0.0 0.1 1.0", "file:"),
        ("-N 3 -n 6", "0.0 0.1 1.0 1.1 2.0 2.1", "file:"),
        ("-N 2 -n 3 --distribution=cyclic", "0.0 1.0 0.1", "file:"),
        ("-N 4 -n 7", "0.0 0.1 1.0 1.1 2.0 2.1 3.0", "file:"),
        ("-N 2 -n 3 --mpi=none", "0.0 0.1 1.0", "file:"),
        ("-N 2 -n 3 --mpi=pmi2", "0.0 0.1 1.0", "pmi:"),
        ("-N 2 -n 3 --mpi=pmi2 --distribution=cyclic", "0.0 1.0 0.1", "pmi:"),
        ("-N 2 -n 3 --mpi=pmix", "0.0 0.1 1.0", "file:"),
        ("-N 1 -n 1", "0.0", "alone"),
    ];
    for (shape, expected, meeting) in cases {
        let world = expected.split(' ').count();
        let joined = job(&slurm, &format!("srun --immediate=10 {shape}"), world);
        assert_eq!(places(&joined), expected, "{shape}");
        for line in &joined {
            assert_eq!(fact(line, "launcher"), if world == 1 { "solo" } else { "slurm" }, "{shape}: {line}");
            assert!(fact(line, "meeting").starts_with(meeting), "{shape}: {line}");
            // Slurm calls them nodes, yet they share a kernel and a network, and so memory.
            let ranks: Vec<String> = (0..world).map(|rank| rank.to_string()).collect();
            assert_eq!(fact(line, "hosts"), format!("enclosure:{}", ranks.join(",")), "{shape}");
        }
        assert_eq!(files_left(&slurm), "", "{shape}");
    }
}

/// A batch script that starts ranks: `rank PART srun …`.
fn script(lines: &str) -> String {
    let rank = rank_words().join(" ");
    let env = env!("CARGO_BIN_EXE_syncline");
    format!("#!/bin/bash\nexport SYNCLINE_TIMEOUT=15 {PLAY}=work\nsyncline_env() {{ {env} env; }}\nrank='{rank}'\n{lines}\n")
}

/// Writes a script into the cluster's home.
fn write(slurm: &Slurm, name: &str, text: &str) -> String {
    let path = slurm.home().join(name);
    std::fs::write(slurm.enclosure().from_outside(&path), text).expect("the home is writable");
    path.display().to_string()
}

/// Submits a script and waits for the end of the job, or of all jobs of an array. `sbatch --wait` looks only every few seconds.
fn batch(slurm: &Slurm, words: &str) {
    slurm.shell(&waiting(words));
}

fn waiting(words: &str) -> String {
    format!("job=$(sbatch --parsable {words})\nwhile squeue -h -j $job -t PD,R,CG 2>/dev/null | grep -q .; do sleep 0.05; done")
}

/// What jobs wrote into files of the home whose names begin so; removes them.
fn outputs(slurm: &Slurm, name: &str) -> Vec<String> {
    slurm
        .shell(&format!("cd $HOME; for file in {name}*; do tr '\\n' '\\t' <$file; echo; rm $file; done"))
        .lines()
        .map(str::to_owned)
        .collect()
}

fn marked<'a>(output: &'a str, word: &str) -> Vec<&'a str> {
    output.split('\t').filter_map(|line| line.split_once(MARK)).map(|(_, said)| said).filter(|said| said.starts_with(word)).collect()
}

#[test]
fn a_batch_script_is_a_world_of_one_and_its_steps_are_worlds_of_their_own() {
    let Some(slurm) = nodes(3) else { return };
    let two_at_once = script(
        "syncline_env | grep -E '^(rank|size|launcher|because)'\n\
         srun --exact -N 2 -n 3 $rank & srun --exact -N 1 -n 2 $rank & wait\n",
    );
    let path = write(&slurm, "steps.sbatch", &two_at_once);
    batch(&slurm, &format!("-N 3 -n 6 -o $HOME/out-%j {path}"));
    slurm.shell(&format!("rm {path}"));
    let output = outputs(&slurm, "out-").remove(0);
    for part in ["rank: 0\t", "size: 1\t", "launcher: solo\t", "not in a step"] {
        assert!(output.contains(part), "no {part:?} in {output}");
    }
    let worked = |sum: &str| marked(&output, "worked").into_iter().filter(|line| fact(line, "sum") == sum).count();
    assert_eq!((worked("6"), worked("3")), (3, 2), "two steps of one job at once: {output}");
    assert_eq!(files_left(&slurm), "");

    // The tasks of an array are jobs of their own.
    let path = write(&slurm, "array.sbatch", &script("srun $rank\n"));
    batch(&slurm, &format!("-a 0-2 -N 2 -n 2 -o $HOME/out-%a {path}"));
    slurm.shell(&format!("rm {path}"));
    let all = outputs(&slurm, "out-");
    assert_eq!(all.len(), 3);
    let mut jobs: Vec<&str> = Vec::new();
    for output in &all {
        assert_eq!(marked(output, "worked").iter().filter(|line| fact(line, "sum") == "3").count(), 2, "{output}");
        jobs.push(fact(marked(output, "joined")[0], "job"));
    }
    jobs.dedup();
    assert_eq!(jobs.len(), 3, "{jobs:?}");
    assert_eq!(files_left(&slurm), "");
}

#[test]
#[ignore = "Slurm keeps a requeued job back for up to half a minute; `make soak` runs it"]
fn a_requeued_job_is_another_life_of_it() {
    let Some(slurm) = nodes(2) else { return };
    let lines = "if [ -z \"$SLURM_RESTART_COUNT\" ]; then touch $HOME/begun; exec sleep 1000; fi\nsrun $rank\n";
    let path = write(&slurm, "again.sbatch", &script(lines));
    let number = slurm.shell(&format!("sbatch --parsable --requeue -N 2 -n 3 -o $HOME/out-%j {path}"));
    slurm.shell("for try in $(seq 500); do [ -e $HOME/begun ] && break; sleep 0.02; done; rm $HOME/begun");
    // Slurm keeps the job back until the credentials of its first life have expired, six seconds here. Started earlier it may fail.
    slurm.shell(&format!("scontrol requeue {number}"));
    let began = Instant::now();
    let output = loop {
        let text = slurm.shell("cat $HOME/out-* 2>/dev/null || true").replace('\n', "\t");
        if marked(&text, "worked").len() == 3 {
            break text;
        }
        assert!(began.elapsed() < LIMIT, "{text}\n{}", slurm.shell("squeue; scontrol show job"));
        std::thread::park_timeout(Duration::from_millis(100));
    };
    for line in marked(&output, "joined") {
        assert_eq!(fact(line, "epoch"), "1", "{line}");
        assert!(fact(line, "meeting").contains("-restart1-"), "{line}");
    }
}

#[test]
fn under_mpirun_inside_slurm_the_ranks_are_mpis() {
    let Some(slurm) = nodes(2) else { return };
    let launchers = [("openmpi", "mpirun.openmpi --mca oob_tcp_if_include lo -np 4"), ("hydra", "mpiexec.hydra -n 4")];
    for (name, launcher) in launchers {
        let program = launcher.split(' ').next().expect("a word");
        if syncline_testkit::enclosure::find_program(program).is_none() {
            println!("skipped: {program} is not installed");
            continue;
        }
        let joined = job(&slurm, &format!("salloc --quiet --immediate=10 -N 2 -n 4 {launcher}"), 4);
        assert!(joined.iter().all(|line| fact(line, "launcher") == name), "{joined:?}");
        // Two daemons, so Slurm numbers them 0 and 1 and gives the same number to all ranks of a node.
        assert!(joined.iter().all(|line| fact(line, "task") == "0"), "{joined:?}");
        assert_eq!(files_left(&slurm), "");
    }
}

/// Kills task 1 of a step and returns what the others say of it.
///
/// Each task writes into a file of its own, which `slurmstepd` does without `srun`: when tasks end one after the other because one
/// was killed, `srun` now and then loses their last words.
fn kill_a_task(slurm: &Slurm, step: &str) -> Vec<String> {
    let files = slurm.home().join("said-%t").display().to_string();
    let mut program = start(slurm, &format!("{step} --output={files}"), "wait");
    let wait_for = |word: &str, count: usize| {
        let began = Instant::now();
        loop {
            let text = slurm.shell("cat $HOME/said-* 2>/dev/null || true").replace('\n', "\t");
            // A line counts once it is whole.
            let whole = text.rsplit_once('\t').map_or("", |(whole, _)| whole);
            let mut lines: Vec<String> = marked(whole, word).into_iter().map(str::to_owned).collect();
            if lines.len() == count {
                lines.sort_by_key(|line| fact(line, if word == "lost" { "me" } else { "rank" }).parse::<u32>().expect("a number"));
                return lines;
            }
            assert!(began.elapsed() < LIMIT, "{count} × {word:?} not within {LIMIT:?}: {text}{}", program.transcript());
            std::thread::park_timeout(Duration::from_millis(10));
        }
    };
    let joined = wait_for("joined", 3);
    let killed = Instant::now();
    slurm.shell(&format!("kill -9 {}", fact(&joined[1], "pid")));
    let lost = wait_for("lost", 2);
    assert!(killed.elapsed() < Duration::from_secs(3), "noticed after {:?}: {lost:?}", killed.elapsed());
    for line in &lost {
        assert_eq!((fact(line, "kind"), fact(line, "rank")), ("PeerLost", "1"), "{line}");
    }
    assert!(!program.end(LIMIT).success(), "srun tells that a task failed");
    slurm.shell("rm $HOME/said-*");
    lost
}

#[test]
fn a_task_that_is_killed_is_named_by_the_others() {
    let Some(slurm) = nodes(2) else { return };
    for step in ["srun --immediate=10 -N 2 -n 3", "srun --immediate=10 -N 2 -n 3 --mpi=pmi2"] {
        let lost = kill_a_task(&slurm, step);
        assert!(lost.iter().all(|line| line.contains("rank 1 (enclosure, pid ")), "{lost:?}");
        assert_eq!(files_left(&slurm), "");
    }
}

#[test]
fn nodes_that_are_hosts_of_their_own_meet_over_the_network() {
    let Some(slurm) = hosts(3) else { return };
    for (shape, meeting) in [("--mpi=none", "file:"), ("--mpi=pmi2", "pmi:"), ("--mpi=pmix", "file:")] {
        let joined = job(&slurm, &format!("srun --immediate=10 -N 3 -n 5 {shape}"), 5);
        for line in &joined {
            assert_eq!(fact(line, "hosts"), "h1:0,1|h2:2,3|h3:4", "{shape}");
            assert!(fact(line, "meeting").starts_with(meeting), "{shape}: {line}");
        }
        assert_eq!(files_left(&slurm), "");
    }
    // Dealt out in turn, neighbours have numbers that are not.
    let mut program = start(&slurm, "srun --immediate=10 -N 2 -n 3 --distribution=cyclic", "exchange");
    program.succeed(LIMIT);
    let joined = in_order(program.said("joined"), "rank");
    assert_eq!(fact(&joined[1], "hosts"), "h1:0,2|h2:1");
    let done = in_order(program.said("done"), "rank");
    assert_eq!(fact(&done[0], "links"), "1:tcp+sealed,2:shm");
    let lost = kill_a_task(&slurm, "srun --immediate=10 -N 3 -n 3");
    assert!(lost.iter().all(|line| line.contains("rank 1 (h2, pid ")), "{lost:?}");
    assert_eq!(files_left(&slurm), "");
}

#[test]
fn tasks_of_a_step_grow_a_tree_in_any_folder_and_beside_a_session() {
    let Some(slurm) = hosts(2) else { return };
    slurm.shell("mkdir $HOME/meet");
    let folder = slurm.home().join("meet").display().to_string();
    let cases = [
        ("--mpi=none", vec![], "file:", ".syncline/slurm-tree-"),
        ("--mpi=none", vec![("BESIDE", "session")], "file:", ".syncline/slurm-tree-"),
        ("--mpi=none", vec![("FOLDER", folder.as_str())], "file:", "/meet/slurm-tree-"),
        ("--mpi=pmi2", vec![], "pmi:", ""),
        ("--mpi=pmi2", vec![("BESIDE", "session"), ("FOLDER", folder.as_str())], "file:", "/meet/slurm-tree-"),
    ];
    for (mpi, variables, begin, part) in cases {
        let settings: String = variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let mut program = start(&slurm, &format!("env {settings}srun --immediate=10 -N 2 -n 3 {mpi}"), "tree");
        program.succeed(LIMIT);
        let trees = in_order(program.said("tree"), "rank");
        assert_eq!(trees.len(), 3, "{}", program.transcript());
        for (line, gpu) in trees.iter().zip(["1", "2", "1"]) {
            assert_eq!((fact(line, "size"), fact(line, "gpu")), ("3", gpu), "{line}");
            let meeting = fact(line, "meeting");
            assert!(meeting.starts_with(begin) && meeting.contains(part), "{settings}{mpi}: {line}");
        }
        assert_eq!(files_left(&slurm), "", "{settings}{mpi}");
    }
}

#[test]
fn a_task_that_never_joins_is_named_and_the_file_goes() {
    let Some(slurm) = nodes(2) else { return };
    let path = write(&slurm, "late.sh", &script("[ $SLURM_PROCID = 2 ] && exec sleep 3\nexec env SYNCLINE_TIMEOUT=2 $rank"));
    let output = slurm.shell(&format!("srun --immediate=10 -N 2 -n 3 bash {path} || true; rm {path}")).replace('\n', "\t");
    let lost = marked(&output, "lost");
    assert_eq!(lost.len(), 2, "{output}");
    for line in lost {
        assert_eq!((fact(line, "kind"), fact(line, "rank")), ("Timeout", "2"), "{line}");
        assert!(line.contains("SLURM_PROCID=2"), "{line}");
    }
    assert_eq!(files_left(&slurm), "");
}

/// Submits an example and returns its log.
fn submit(slurm: &Slurm, example: &str, more: &[(&str, String)]) -> String {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project's folder");
    let exports: Vec<String> = more.iter().map(|(name, value)| format!("{name}='{value}'")).collect();
    let script = root.join("examples/slurm").join(example);
    let program = format!("env SYNCLINE_TIMEOUT=15 {} sbatch", exports.join(" "));
    let words = format!("-D {} -o $HOME/out-%j {}", root.display(), script.display());
    slurm.shell(&format!("sbatch() {{ {program} \"$@\"; }}\n{}", waiting(&words)));
    outputs(slurm, "out-").remove(0)
}

#[test]
fn the_example_scripts_train_on_even_and_uneven_nodes() {
    let Some(slurm) = nodes(4) else { return };
    let program = || vec![("PROGRAM", rank_words().join(" ")), (PLAY, "work".to_owned())];
    let output = submit(&slurm, "train.sbatch", &program());
    assert_eq!(marked(&output, "worked").iter().filter(|line| fact(line, "sum") == "10").count(), 4, "{output}");
    let output = submit(&slurm, "uneven.sbatch", &program());
    assert!(output.contains("tasks on each node: 2(x3),1, life number 0"), "{output}");
    assert_eq!(marked(&output, "worked").iter().filter(|line| fact(line, "sum") == "28").count(), 7, "{output}");
    let output = submit(&slurm, "tree.sbatch", &[("PROGRAM", rank_words().join(" ")), (PLAY, "sums".to_owned())]);
    let trees = marked(&output, "slurm");
    assert_eq!(trees.len(), 3, "{output}");
    assert!(trees.iter().all(|line| fact(line, "contributors") == "3" && fact(line, "digest") == fact(trees[0], "digest")), "{output}");
    assert_eq!(files_left(&slurm), "");

    // As a user submits them (but for a shorter training), where the Python package is installed.
    let Some(python) = std::env::var_os("SYNCLINE_TEST_PYTHON").map(std::path::PathBuf::from) else {
        return println!("skipped: SYNCLINE_TEST_PYTHON names no interpreter");
    };
    let ready = std::process::Command::new(&python).args(["-c", "import syncline, sklearn"]).output();
    if !ready.is_ok_and(|ran| ran.status.success()) {
        return println!("skipped: {} has no syncline and scikit-learn", python.display());
    }
    let folder = python.parent().expect("a folder").display();
    let path = ("PATH", format!("{folder}:{}", std::env::var("PATH").unwrap_or_default()));
    let few_epochs = ("PROGRAM", "python3 examples/python/digits.py --sync --epochs 20".to_owned());
    let output = submit(&slurm, "train.sbatch", &[path.clone(), few_epochs]);
    assert!(output.contains("sync, 4 workers: test accuracy 0.9"), "{output}");
    let output = submit(&slurm, "tree.sbatch", std::slice::from_ref(&path));
    assert!(output.contains("3 nodes on GPUs [1, 2, 1], weights [ 2.  -1.   0.5], the same bits on all"), "{output}");
    let output = submit(&slurm, "uneven.sbatch", &[path]);
    assert!(output.contains("7 ranks on 1 host") && output.contains("a barrier of 7 takes"), "{output}");
    assert_eq!(files_left(&slurm), "");
}
