//! Key-value tables over several servers.

use std::collections::HashMap;

use syncline_testkit::sim::Chance;

use super::world::{Plan, bytes, numbers, soon};
use crate::{AddOptions, Consistency};

#[test]
fn keys_of_any_sign_add_up_over_servers() {
    for (seed, here) in (0..12).zip([None, Some(0), Some(2)].into_iter().cycle()) {
        let consistency = [Consistency::Async, Consistency::Sync, Consistency::Bounded(2)][seed as usize / 3 % 3];
        let plan = Plan { here: vec![here], ..Plan::new(&[0..0, 0..0, 0..0], 1, consistency) };
        let world = plan.build_keys();
        let table = world.open(0, here);
        let mut chance = Chance::new(seed);
        let mut model: HashMap<i64, i64> = HashMap::new();
        for _ in 0..40 {
            let keys: Vec<i64> = (0..chance.below(9)).map(|_| (chance.below(20) as i64 - 10) * (1 << chance.below(50))).collect();
            let values: Vec<i64> = keys.iter().map(|_| chance.below(100) as i64 - 50).collect();
            let wait = chance.below(2) == 0;
            table.add(&bytes(&values), Some(&keys), &AddOptions::default(), wait, soon()).unwrap();
            keys.iter().zip(&values).for_each(|(key, value)| *model.entry(*key).or_default() += value);
            let asked: Vec<i64> = (0..5).map(|_| chance.below(20) as i64 - 10).chain(keys.iter().copied()).collect();
            let mut out = vec![0; asked.len() * 8];
            table.get(&mut out, Some(&asked), soon()).unwrap();
            let expected: Vec<i64> = asked.iter().map(|key| model.get(key).copied().unwrap_or(0)).collect();
            assert_eq!(numbers(&out), expected, "seed {seed}");
        }
        drop(table);
        world.end();
    }
}

#[test]
fn pairs_are_exported_by_key_and_imported_anywhere() {
    let (three, two) = (Plan::new(&[0..0, 0..0, 0..0], 1, Consistency::Async), Plan::new(&[0..0, 0..0], 1, Consistency::Async));
    let (world, other) = (three.build_keys(), two.build_keys());
    let (table, again) = (world.open(0, None), other.open(0, None));
    let keys: Vec<i64> = (0..100).map(|key| key * 7 - 300).collect();
    table.add(&bytes(&keys), Some(&keys), &AddOptions::default(), false, soon()).unwrap();
    let none = || unreachable!("no part is in this process");
    let exported = table.export(none, soon()).unwrap();
    assert_eq!(exported.len(), 3);
    assert!(exported.iter().all(|(keys, values)| keys.is_sorted() && *keys == numbers(values)));
    again.add(&bytes(&[1]), Some(&[12345]), &AddOptions::default(), false, soon()).unwrap();
    let (all, values): (Vec<i64>, Vec<Vec<u8>>) = exported
        .into_iter()
        .flat_map(|(keys, values)| keys.into_iter().zip(values.chunks(8).map(<[u8]>::to_vec).collect::<Vec<_>>()).collect::<Vec<_>>())
        .unzip();
    again.import(&all, &values.concat(), |_, _| (), soon()).unwrap();
    let mut out = vec![0; 800];
    again.get(&mut out, Some(&keys), soon()).unwrap();
    assert_eq!(numbers(&out), keys);
    again.get(&mut out[..8], Some(&[12345]), soon()).unwrap();
    assert_eq!(numbers(&out[..8]), [0], "nothing of the old contents is left");
    drop((table, again));
    world.end();
    other.end();
}
