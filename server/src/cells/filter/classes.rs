//! Sets of bytes, and those to which RE2 gives names: Perl's, POSIX's, and Unicode's as far as Latin-1 has
//! characters of them.

use regex_syntax::hir::{Class, ClassBytes, ClassBytesRange, Hir};

type Ranges = &'static [(u8, u8)];

/// General categories of Unicode with two letters. One letter names all that begin with it.
const CATEGORIES: &[(&[u8], Ranges)] = &[
    (b"Cc", &[(0x00, 0x1f), (0x7f, 0x9f)]),
    (b"Cf", &[(0xad, 0xad)]),
    (b"Co", &[]),
    (b"Cs", &[]),
    (b"Ll", &[(b'a', b'z'), (0xb5, 0xb5), (0xdf, 0xf6), (0xf8, 0xff)]),
    (b"Lm", &[]),
    (b"Lo", &[(0xaa, 0xaa), (0xba, 0xba)]),
    (b"Lt", &[]),
    (b"Lu", &[(b'A', b'Z'), (0xc0, 0xd6), (0xd8, 0xde)]),
    (b"Mc", &[]),
    (b"Me", &[]),
    (b"Mn", &[]),
    (b"Nd", &[(b'0', b'9')]),
    (b"Nl", &[]),
    (b"No", &[(0xb2, 0xb3), (0xb9, 0xb9), (0xbc, 0xbe)]),
    (b"Pc", &[(b'_', b'_')]),
    (b"Pd", &[(b'-', b'-')]),
    (b"Pe", &[(b')', b')'), (b']', b']'), (b'}', b'}')]),
    (b"Pf", &[(0xbb, 0xbb)]),
    (b"Pi", &[(0xab, 0xab)]),
    (b"Po", &[(b'!', b'#'), (b'%', b'\''), (b'*', b'*'), (b',', b','), (b'.', b'/'), (b':', b';')]),
    (b"Po", &[(b'?', b'@'), (b'\\', b'\\'), (0xa1, 0xa1), (0xa7, 0xa7), (0xb6, 0xb7), (0xbf, 0xbf)]),
    (b"Ps", &[(b'(', b'('), (b'[', b'['), (b'{', b'{')]),
    (b"Sc", &[(b'$', b'$'), (0xa2, 0xa5)]),
    (b"Sk", &[(b'^', b'^'), (b'`', b'`'), (0xa8, 0xa8), (0xaf, 0xaf), (0xb4, 0xb4), (0xb8, 0xb8)]),
    (b"Sm", &[(b'+', b'+'), (b'<', b'>'), (b'|', b'|'), (b'~', b'~'), (0xac, 0xac), (0xb1, 0xb1)]),
    (b"Sm", &[(0xd7, 0xd7), (0xf7, 0xf7)]),
    (b"So", &[(0xa6, 0xa6), (0xa9, 0xa9), (0xae, 0xae), (0xb0, 0xb0)]),
    (b"Zl", &[]),
    (b"Zp", &[]),
    (b"Zs", &[(b' ', b' '), (0xa0, 0xa0)]),
];

/// The one script with letters in Latin-1; the rest of it is common to all.
const LATIN: Ranges =
    &[(b'A', b'Z'), (b'a', b'z'), (0xaa, 0xaa), (0xba, 0xba), (0xc0, 0xd6), (0xd8, 0xf6), (0xf8, 0xff)];

/// Scripts without characters in Latin-1.
const SCRIPTS: &str = "\
    Adlam Ahom Anatolian_Hieroglyphs Arabic Armenian Avestan Balinese Bamum Bassa_Vah Batak Bengali \
    Bhaiksuki Bopomofo Brahmi Braille Buginese Buhid Canadian_Aboriginal Carian Caucasian_Albanian \
    Chakma Cham Cherokee Chorasmian Coptic Cuneiform Cypriot Cypro_Minoan Cyrillic Deseret Devanagari \
    Dives_Akuru Dogra Duployan Egyptian_Hieroglyphs Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic \
    Grantha Greek Gujarati Gunjala_Gondi Gurmukhi Han Hangul Hanifi_Rohingya Hanunoo Hatran Hebrew \
    Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi Inscriptional_Parthian Javanese Kaithi \
    Kannada Katakana Kawi Kayah_Li Kharoshthi Khitan_Small_Script Khmer Khojki Khudawadi Lao Lepcha \
    Limbu Linear_A Linear_B Lisu Lycian Lydian Mahajani Makasar Malayalam Mandaic Manichaean Marchen \
    Masaram_Gondi Medefaidrin Meetei_Mayek Mende_Kikakui Meroitic_Cursive Meroitic_Hieroglyphs Miao Modi \
    Mongolian Mro Multani Myanmar Nabataean Nag_Mundari Nandinagari New_Tai_Lue Newa Nko Nushu \
    Nyiakeng_Puachue_Hmong Ogham Ol_Chiki Old_Hungarian Old_Italic Old_North_Arabian Old_Permic \
    Old_Persian Old_Sogdian Old_South_Arabian Old_Turkic Old_Uyghur Oriya Osage Osmanya Pahawh_Hmong \
    Palmyrene Pau_Cin_Hau Phags_Pa Phoenician Psalter_Pahlavi Rejang Runic Samaritan Saurashtra Sharada \
    Shavian Siddham SignWriting Sinhala Sogdian Sora_Sompeng Soyombo Sundanese Syloti_Nagri Syriac \
    Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Takri Tamil Tangsa Tangut Telugu Thaana Thai Tibetan \
    Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Warang_Citi Yezidi Yi Zanabazar_Square";

/// A set of bytes.
pub(super) struct Set([bool; 256]);

impl Default for Set {
    fn default() -> Self {
        Self([false; 256])
    }
}

impl Set {
    fn of(ranges: &[(u8, u8)]) -> Self {
        let mut set = Self::default();
        ranges.iter().for_each(|(from, to)| set.add(*from, *to));
        set
    }

    pub(super) fn add(&mut self, from: u8, to: u8) {
        self.0[usize::from(from)..=usize::from(to)].fill(true);
    }

    /// Adds a class that has a name, or what is not in it: of letters, where case is folded, neither case.
    pub(super) fn join(&mut self, mut class: Self, is_not: bool, folds_case: bool) {
        if is_not {
            if folds_case {
                class.fold_case();
            }
            class.negate();
        }
        self.0.iter_mut().zip(class.0).for_each(|(own, other)| *own |= other);
    }

    pub(super) fn negate(&mut self) {
        self.0.iter_mut().for_each(|is_in| *is_in = !*is_in);
    }

    /// Adds the other case of each letter.
    pub(super) fn fold_case(&mut self) {
        for byte in 0..=u8::MAX {
            if self.0[usize::from(byte)]
                && let Some(other) = other_case(byte)
            {
                self.add(other, other);
            }
        }
    }

    pub(super) fn hir(&self) -> Hir {
        let (mut ranges, mut first) = (Vec::new(), None);
        for byte in 0..=u8::MAX {
            match (self.0[usize::from(byte)], first) {
                (true, None) => first = Some(byte),
                (false, Some(from)) => {
                    ranges.push(ClassBytesRange::new(from, byte - 1));
                    first = None;
                }
                _ => {}
            }
        }
        ranges.extend(first.map(|from| ClassBytesRange::new(from, u8::MAX)));
        Hir::class(Class::Bytes(ClassBytes::new(ranges)))
    }
}

/// The other case of a letter that has it in Latin-1.
pub(super) fn other_case(byte: u8) -> Option<u8> {
    match byte {
        b'A'..=b'Z' | 0xc0..=0xd6 | 0xd8..=0xde => Some(byte + 0x20),
        b'a'..=b'z' | 0xe0..=0xf6 | 0xf8..=0xfe => Some(byte - 0x20),
        _ => None,
    }
}

/// The class of `\d` and the like, and whether what is not in it is meant.
pub(super) fn perl_class(letter: u8) -> Option<(Set, bool)> {
    let ranges: Ranges = match letter.to_ascii_lowercase() {
        b'd' => &[(b'0', b'9')],
        b's' => &[(b'\t', b'\n'), (0x0c, b'\r'), (b' ', b' ')],
        b'w' => &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')],
        _ => return None,
    };
    Some((Set::of(ranges), letter.is_ascii_uppercase()))
}

/// The class of `[:alpha:]` and the like.
pub(super) fn posix_class(name: &[u8]) -> Option<Set> {
    let ranges: Ranges = match name {
        b"alnum" => &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')],
        b"alpha" => &[(b'A', b'Z'), (b'a', b'z')],
        b"ascii" => &[(0x00, 0x7f)],
        b"blank" => &[(b'\t', b'\t'), (b' ', b' ')],
        b"cntrl" => &[(0x00, 0x1f), (0x7f, 0x7f)],
        b"digit" => &[(b'0', b'9')],
        b"graph" => &[(b'!', b'~')],
        b"lower" => &[(b'a', b'z')],
        b"print" => &[(b' ', b'~')],
        b"punct" => &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')],
        b"space" => &[(b'\t', b'\r'), (b' ', b' ')],
        b"upper" => &[(b'A', b'Z')],
        b"word" => &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')],
        b"xdigit" => &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')],
        _ => return None,
    };
    Some(Set::of(ranges))
}

/// The class of `\p{Lu}`, `\p{Greek}` and the like.
pub(super) fn unicode_class(name: &[u8], folds_case: bool) -> Option<Set> {
    let mut of_categories = CATEGORIES
        .iter()
        .filter(|(category, _)| *category == name || (name.len() == 1 && category.starts_with(name)))
        .peekable();
    let mut set = match name {
        b"Any" => Set::of(&[(0x00, 0xff)]),
        b"Latin" => Set::of(LATIN),
        b"Common" => {
            let mut set = Set::of(LATIN);
            set.negate();
            set
        }
        _ if of_categories.peek().is_some() => {
            let mut set = Set::default();
            of_categories.for_each(|(_, ranges)| set.join(Set::of(ranges), false, false));
            set
        }
        _ if SCRIPTS.split_ascii_whitespace().any(|script| script.as_bytes() == name) => Set::default(),
        _ => return None,
    };
    // Letters beyond Latin-1 whose other case is in it: a Greek mu, the capitals of sharp s and of y with two
    // dots.
    let others: &[u8] = match name {
        b"Lu" => &[0xb5, 0xdf, 0xff],
        b"Greek" => &[0xb5],
        _ => &[],
    };
    if folds_case {
        others.iter().for_each(|byte| set.add(*byte, *byte));
    }
    Some(set)
}
