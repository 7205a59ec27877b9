use super::{Change, History, Model};

#[test]
fn built_in_history_is_complete() {
    let history = History::decode().unwrap();
    let mut model = Model::new();
    let (mut batches, mut operations) = (0, 0);
    for batch in history.batches() {
        let batch = batch.unwrap();
        batches += 1;
        operations += batch.len();
        for change in batch {
            match change {
                Change::Put(key, content) => model.insert(key, content),
                Change::Delete(key) => model.remove(key),
            };
        }
    }
    assert_eq!((batches, operations, model.len()), (56_992, 352_812, 16_600));
}
