//! The table of settings, as in [`tables`](super::tables).

diesel::table! {
    windlass_settings (name) {
        name -> Text,
        value -> Text,
    }
}
