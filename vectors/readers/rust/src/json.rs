//! JSON as the vectors have it: a value, and its parser.

use std::collections::BTreeMap;

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    /// By name; `order` has the names in the order of the text.
    Object { order: Vec<String>, by_name: BTreeMap<String, Json> },
}

impl Json {
    /// Parse a text, or say where it is no JSON.
    pub fn parse(text: &str) -> Result<Json, String> {
        let mut parser = Parser { text: text.as_bytes(), at: 0, depth: 0 };
        let found = parser.value()?;
        parser.skip();
        if parser.at == text.len() { Ok(found) } else { parser.wrong("the end") }
    }

    /// A member of an object.
    pub fn get(&self, name: &str) -> Option<&Json> {
        if let Json::Object { by_name, .. } = self { by_name.get(name) } else { None }
    }

    /// The members of an object in the order of the text; of anything else none.
    pub fn members(&self) -> Vec<(&str, &Json)> {
        if let Json::Object { order, by_name } = self { order.iter().map(|n| (n.as_str(), &by_name[n])).collect() } else { vec![] }
    }

    /// The items of a list; of anything else none.
    pub fn items(&self) -> &[Json] {
        if let Json::List(items) = self { items } else { &[] }
    }

    /// The text of a string; "" of anything else.
    pub fn text(&self) -> &str {
        if let Json::Text(text) = self { text } else { "" }
    }

    /// A number; NaN for anything else.
    pub fn number(&self) -> f64 {
        if let Json::Number(x) = self { *x } else { f64::NAN }
    }
}

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

const DEEPEST: usize = 32;

impl Parser<'_> {
    fn wrong<T>(&self, wanted: &str) -> Result<T, String> {
        Err(format!("byte {} should be {wanted}", self.at))
    }

    fn skip(&mut self) {
        while self.text.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    fn take(&mut self, byte: u8) -> bool {
        self.skip();
        let taken = self.text.get(self.at) == Some(&byte);
        self.at += usize::from(taken);
        taken
    }

    fn value(&mut self) -> Result<Json, String> {
        self.skip();
        for (word, value) in [("null", Json::Null), ("true", Json::Bool(true)), ("false", Json::Bool(false))] {
            if self.text[self.at..].starts_with(word.as_bytes()) {
                self.at += word.len();
                return Ok(value);
            }
        }
        match self.text.get(self.at) {
            Some(b'"') => Ok(Json::Text(self.string()?)),
            Some(b'[' | b'{') if self.depth == DEEPEST => self.wrong("of fewer levels"),
            Some(b'[') => self.deeper(Self::list),
            Some(b'{') => self.deeper(Self::object),
            _ => self.digits(),
        }
    }

    fn deeper(&mut self, parse: fn(&mut Self) -> Result<Json, String>) -> Result<Json, String> {
        self.depth += 1;
        let found = parse(self);
        self.depth -= 1;
        found
    }

    fn digits(&mut self) -> Result<Json, String> {
        let begin = self.at;
        while self.text.get(self.at).is_some_and(|b| b"+-.0123456789eE".contains(b)) {
            self.at += 1;
        }
        let found = std::str::from_utf8(&self.text[begin..self.at]).ok().and_then(|x| x.parse().ok());
        found.map_or_else(|| self.wrong("a value"), |x| Ok(Json::Number(x)))
    }

    fn string(&mut self) -> Result<String, String> {
        if !self.take(b'"') {
            return self.wrong("a string");
        }
        let mut found = Vec::new();
        loop {
            let Some(&byte) = self.text.get(self.at) else { return self.wrong("a quote") };
            self.at += 1;
            match byte {
                b'"' => return String::from_utf8(found).map_err(|e| e.to_string()),
                b'\\' => {
                    let Some(&next) = self.text.get(self.at) else { return self.wrong("an escape") };
                    if !b"\"\\/".contains(&next) {
                        return self.wrong("an escaped quote or slash");
                    }
                    found.push(next);
                    self.at += 1;
                }
                other => found.push(other),
            }
        }
    }

    fn list(&mut self) -> Result<Json, String> {
        self.at += 1;
        let mut items = Vec::new();
        while !self.take(b']') {
            if !items.is_empty() && !self.take(b',') {
                return self.wrong("a comma");
            }
            items.push(self.value()?);
        }
        Ok(Json::List(items))
    }

    fn object(&mut self) -> Result<Json, String> {
        self.at += 1;
        let (mut order, mut by_name) = (Vec::new(), BTreeMap::new());
        while !self.take(b'}') {
            if !order.is_empty() && !self.take(b',') {
                return self.wrong("a comma");
            }
            self.skip();
            let name = self.string()?;
            if !self.take(b':') {
                return self.wrong("a colon");
            }
            by_name.insert(name.clone(), self.value()?);
            order.push(name);
        }
        Ok(Json::Object { order, by_name })
    }
}
