//! Values that are laid out once and read many times.

use syncline_ipc::{DType, ErrorKind, Marshal, Shape, Value};

fn tensor() -> Value<'static> {
    let data: Vec<u8> = [1.0f32, 2.0, 3.0].iter().flat_map(|number| number.to_le_bytes()).collect();
    Value::tensor(DType::F32, Shape::new(&[3]).expect("small"), data).expect("fits")
}

/// T12: read twice, a tensor has two owners.
#[test]
fn every_read_is_the_value_and_has_tensors_of_its_own() {
    let value = Value::Map(vec![(Value::from("weights"), tensor()), (Value::from("steps"), Value::Int(3))]);
    let marshal = Marshal::new(&value).expect("laid out");
    let first = marshal.read().expect("read");
    drop(marshal.read().expect("read"));
    assert_eq!((first, marshal.read().expect("read")), (value.clone(), value));
}

#[test]
fn many_threads_read_one() {
    let marshal = Marshal::new(&tensor()).expect("laid out");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..100).for_each(|_| assert_eq!(marshal.read().expect("read"), tensor())));
        }
    });
}

#[test]
fn nil_is_refused_and_a_closed_one_says_so() {
    assert_eq!(Marshal::new(&Value::Nil).expect_err("nothing").kind(), ErrorKind::Configuration);
    let marshal = Marshal::new(&Value::from(1i64)).expect("laid out");
    marshal.close();
    marshal.close();
    assert_eq!(marshal.read().expect_err("closed").kind(), ErrorKind::Closed);
}
