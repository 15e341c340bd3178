//! Tables of crates.

use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

pub(super) fn nfc(text: &str) -> String {
    text.nfc().collect()
}

pub(super) fn is_letter(character: char) -> bool {
    character.general_category_group() == GeneralCategoryGroup::Letter
}

pub(super) fn is_number(character: char) -> bool {
    character.general_category_group() == GeneralCategoryGroup::Number
}

pub(super) fn is_mark_digit_or_connector(character: char) -> bool {
    character.general_category_group() == GeneralCategoryGroup::Mark
        || matches!(
            character.general_category(),
            GeneralCategory::DecimalNumber | GeneralCategory::ConnectorPunctuation
        )
}
