use crate::Tree;

#[test]
fn presets_are_valid_and_parse_by_name() {
    for (name, tree) in Tree::presets() {
        super::validate(tree).unwrap();
        assert_eq!(tree.to_string(), name);
        assert_eq!(name.parse::<Tree>().unwrap(), tree);
    }
}
