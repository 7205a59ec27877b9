//! The soak, short; a process of its own, because it measures the process.

use testudo_sim::{Limits, layers::find};

#[test]
fn a_store_under_faults_stays_right_and_flat() {
    let soak = find("soak").expect("a layer of this name");
    match (soak.run)(&Limits::default()) {
        Ok(report) => println!("{report}"),
        Err(failure) => panic!("{failure}"),
    }
}
