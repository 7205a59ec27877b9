use super::*;

fn chart(points: &[(f64, f64)]) -> LineChart {
    let lines = vec![Line { name: "a < b".to_owned(), points: points.to_vec() }];
    LineChart { title: "t".to_owned(), x_doubles: true, lines, ..LineChart::default() }
}

#[test]
fn log_axis_has_equal_steps_and_names_are_escaped() {
    let svg = chart(&[(1.0, 1.0), (2.0, 2.0), (4.0, 3.0)]).svg();
    let way = svg.split("points='").nth(1).unwrap().split('\'').next().unwrap();
    let x: Vec<f64> = way.split_whitespace().map(|p| p.split(',').next().unwrap().parse().unwrap()).collect();
    assert_eq!(x.len(), 3);
    assert!(((x[1] - x[0]) - (x[2] - x[1])).abs() < 0.2, "{x:?}");
    assert!(svg.contains("a &lt; b") && !svg.contains("a < b"));
}

#[test]
fn single_point_is_drawn_and_nan_is_omitted() {
    let svg = chart(&[(8.0, 5.0), (f64::NAN, 1.0)]).svg();
    assert_eq!(svg.matches("<circle").count(), 1);
    assert!(!svg.contains("NaN") && !svg.contains("inf"));
}
