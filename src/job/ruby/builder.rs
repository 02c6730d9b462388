//! How jobs of Ruby classes are made.

use crate::job::new_job::NewJob;
use crate::job::ruby_call::RubyCall;
use serde::Serialize;

impl NewJob {
    /// Creates a job of an Active Job class, such as `Reports::BuildJob`, which a worker of Solid Queue performs.
    ///
    /// The arguments are passed by [`arg`](Self::arg) and [`kwarg`](Self::kwarg), in the envelope that Active Job writes.
    /// Ruby's types that JSON has not are in [`ruby`](crate::ruby). The job counts for no `limits_concurrency` of its class,
    /// which only Ruby knows. Retries are those of the class, in Ruby.
    ///
    /// ```
    /// # use diesel::prelude::*;
    /// # let mut conn = SqliteConnection::establish(":memory:").unwrap();
    /// # windlass::migrate(&mut conn).unwrap();
    /// use windlass::NewJob;
    /// use windlass::ruby::GlobalId;
    ///
    /// let user: GlobalId = "gid://app/User/7".parse().unwrap();
    /// NewJob::ruby("WelcomeJob") // WelcomeJob.set(queue: :mail).perform_later(user, locale: "de")
    ///     .arg(user)
    ///     .kwarg("locale", "de")
    ///     .queue("mail")
    ///     .enqueue(&mut conn)?;
    /// # Ok::<(), windlass::Error>(())
    /// ```
    ///
    /// # Errors
    /// When it is enqueued: if `class` is no name of a Ruby class, or an argument cannot be passed. As for
    /// [`of_class`](Self::of_class), a class is refused that a worker of Rust has registered as
    /// [internal](crate::Job::INTERNAL).
    pub fn ruby(class: impl Into<String>) -> Self {
        let class = class.into();
        let problem = (!is_constant(&class)).then(|| {
            "it is no name of a Ruby class: write it as in Ruby, such as `Reports::BuildJob`"
                .to_owned()
        });
        let call = RubyCall {
            problem,
            ..RubyCall::default()
        };
        let mut job = NewJob::of_class(class, "[]");
        job.ruby = Some(Box::new(call));
        job
    }

    /// Adds a positional argument of a [Ruby job](Self::ruby). A struct or map arrives as a hash with texts as keys; see
    /// [`SymbolKeys`](crate::ruby::SymbolKeys).
    pub fn arg(self, value: impl Serialize) -> Self {
        self.with_call(|call| {
            let value = call.passed(&format!("argument {}", call.positional.len() + 1), value);
            call.positional.push(value);
        })
    }

    /// Adds a keyword argument of a [Ruby job](Self::ruby).
    pub fn kwarg(self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        self.with_call(|call| {
            if name.is_empty() || name.starts_with("_aj_") || call.keywords.contains_key(&name) {
                call.refuse(format!(
                    "its keyword `{}` is empty, reserved by Active Job, or there twice",
                    name.escape_debug()
                ));
            }
            let value = call.passed(&format!("keyword `{}`", name.escape_debug()), value);
            call.keywords.insert(name, value);
        })
    }

    fn with_call(mut self, change: impl FnOnce(&mut RubyCall)) -> Self {
        let call = self.ruby.get_or_insert_with(|| {
            let problem = "`arg` and `kwarg` are for jobs of `NewJob::ruby`; the arguments of others are passed where they \
                 are created";
            Box::new(RubyCall {
                problem: Some(problem.to_owned()),
                ..RubyCall::default()
            })
        });
        change(call);
        self
    }
}

/// Whether the text is the name of a constant, with its modules.
fn is_constant(class: &str) -> bool {
    class.split("::").all(|part| {
        let mut characters = part.chars();
        characters.next().is_some_and(char::is_uppercase)
            && characters.all(|one| one.is_alphanumeric() || one == '_')
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_named_as_in_ruby() {
        for good in ["A", "Reports::BuildJob", "Ärger", "V2_Job"] {
            assert!(is_constant(good), "{good}");
        }
        for bad in ["", "a", "A::", "::A", "A.b", "A b", "A::b"] {
            assert!(!is_constant(bad), "{bad}");
        }
    }
}
