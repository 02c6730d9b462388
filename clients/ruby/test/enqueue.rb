# Enqueues a job with this text.
require_relative "support"

class Note < Windlass::Job
  rust_class "note"
end

Note.perform_later(text: ARGV.fetch(0))
