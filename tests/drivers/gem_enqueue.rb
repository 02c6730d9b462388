# Enqueues jobs by Active Job and the gem for Rails, on a migrated database.
#
# Usage: gem_enqueue.rb DATABASE
# Prints the arguments of the jobs `facts` once more, as Active Job's own envelope has them.

require_relative "../../clients/ruby/test/database"

GlobalID.app = "app"

class Widget
  include GlobalID::Identification
  def id = 7
end

class Facts < Windlass::Job
  queue_as :rust
  rust_class "facts"
end

class Limited < Windlass::Job
  rust_class "note"
  limits_runs to: 1, key: ->(text:) { text[0] }, group: "notes"
end

class Unique < Windlass::Job
  rust_class "note"
  unique_by ->(text:) { "note/#{text}" }
end

class Once < Windlass::Job
  rust_class "note"
  at_most_once
end

FACTS = {
  text: "it's ✓", none: nil, yes: true, small: -(2**63), large: 2**64 - 1, half: 0.5, list: [1, [:two, { "three" => 3 }]],
  symbol: :sym, widget: Widget.new, time: Time.at(1_790_000_000, 123_456_789, :nsec).utc, date: Date.new(2026, 12, 24),
  date_time: DateTime.new(2026, 12, 24, 18, 0, 0.5r), zoned: Time.zone.at(1_790_000_000), span: 5.minutes,
  halves: 1.5.seconds, decimal: BigDecimal("12.50"), class: String, hash: { a: 1, "b" => { c: [nil] } }.with_indifferent_access
}.freeze

connect(ARGV.fetch(0))
Facts.set(priority: 3).perform_later(**FACTS)
Facts.set(wait_until: Time.utc(2100, 1, 2, 3, 4, 5.6r), queue: :later).perform_later(number: 1)
Limited.perform_later(text: "limited 1")
Limited.perform_later(text: "limited 2")
2.times { Unique.perform_later(text: "unique") }
Once.perform_later(text: "once")
ActiveRecord::Base.transaction do
  Once.perform_later(text: "rolled back")
  raise ActiveRecord::Rollback
end
puts ActiveSupport::JSON.encode(ActiveJob::Arguments.serialize([FACTS]))
