# frozen_string_literal: true

# Tests of the gem, on the migrated database whose address is in WINDLASS_CLIENT_DATABASE.

require_relative "database"
require "minitest/autorun"

CONNECTION = connect(ENV.fetch("WINDLASS_CLIENT_DATABASE"))
IS_POSTGRES = Windlass.postgres?(CONNECTION)
GlobalID.app = "app"

class Widget
  include GlobalID::Identification
  attr_reader :id

  def initialize(id) = @id = id
end

class Welcome < Windlass::Job
  queue_as :rust_mail
end

class Limited < Windlass::Job
  rust_class "notes::limited"
  limits_runs to: 2, key: :account_key, on_conflict: :discard
  unique_by ->(account:, **) { account == 9 ? nil : "limited/#{account}" }, scope: :while_waiting, on_conflict: :replace
  at_most_once

  def account_key(account:, **) = account
end

class Described < Windlass::Job
  enqueues_with tags: ->(account:, **) { ["account/#{account}", "night"] }, meta: { request: "4711" }, version: 2
  enqueues_with timeout: 1.5, backoff: 10.seconds, backoff_cap: 1.hour, max_attempts: 3, expires_in: 1.day, tenant: "acme"
end

class Rated < Windlass::Job
  enqueues_with rates: ->(account:, **) { [{ number: 10, period: :minute, key: "api/#{account}" }, { number: 9, period: "day" }] }
end

class Refused < Windlass::Job
  unique_by "always", on_conflict: :refuse
end

class WindlassTest < Minitest::Test
  def setup
    CONNECTION.execute("DELETE FROM windlass_unique_jobs")
    CONNECTION.execute("DELETE FROM solid_queue_jobs")
    CONNECTION.execute("DELETE FROM windlass_events")
  end

  def jobs(columns = "id")
    CONNECTION.select_rows("SELECT #{columns} FROM solid_queue_jobs ORDER BY id")
  end

  def refusal(**fields)
    assert_raises(Windlass::ArgumentError) { Welcome.perform_later(**fields) }.message
  end

  def test_a_job_has_its_class_queue_and_arguments
    job = Welcome.perform_later(email: "ada@example.com")
    assert_equal([[job.provider_job_id, "Welcome", "rust_mail", '{"email":"ada@example.com"}', 0]],
                 jobs("id, class_name, queue_name, arguments, priority"))
    Welcome.perform_later({ "email" => 1 })
    Welcome.perform_later
    assert_equal([['{"email":1}'], ["null"]], jobs("coalesce(arguments, 'null')").drop(1))
  end

  def test_a_job_belongs_to_the_transaction_of_the_caller
    ActiveRecord::Base.transaction do
      Welcome.perform_later(email: "a")
      raise ActiveRecord::Rollback
    end
    assert_empty jobs
  end

  def test_options_of_one_enqueue
    Welcome.set(wait_until: Time.utc(2100, 1, 2, 3, 4, 5.5r), queue: :slow, priority: -3).perform_later(email: "a")
    queue, priority, at = jobs("queue_name, priority, scheduled_at").first
    assert_equal ["slow", -3, "2100-01-02 03:04:05.5"], [queue, priority, (at.is_a?(Time) ? at.strftime("%F %T.%1N") : at[0, 21])]
    Welcome.set(wait: 1.hour).perform_later(email: "b")
    assert_equal 2, CONNECTION.select_value("SELECT count(*) FROM solid_queue_scheduled_executions")
  end

  def test_a_class_says_limit_unique_id_and_delivery
    columns = "class_name, concurrency_key, concurrency_slots, concurrency_conflict, unique_id, at_most_once"
    first = Limited.perform_later(account: 7, text: "a")
    second = Limited.perform_later(account: 7, text: "b")
    name, key, limit, on_conflict, unique, once = jobs(columns).first
    assert_equal ["notes::limited", "notes::limited/7", 2, "discard", "limited/7"], [name, key, limit, on_conflict, unique]
    assert_includes [1, true], once
    assert_equal [[first.provider_job_id, '{"account":7,"text":"b"}']], jobs("id, arguments")
    assert_equal first.provider_job_id, second.provider_job_id
    2.times { Limited.perform_later(account: 9) }
    assert_equal 3, jobs.size
  end

  def test_a_class_says_what_else_a_job_is_enqueued_with
    Described.perform_later(account: 7)
    ActiveJob.perform_all_later([Described.new(account: 8)]) if ActiveJob.respond_to?(:perform_all_later)
    jobs("policy, max_attempts, tenant").each_with_index do |(policy, attempts, tenant), place|
      policy = JSON.parse(policy)
      extras = { "tags" => ["account/#{7 + place}", "night"], "meta" => { "request" => "4711" }, "version" => 2 }
      assert_equal [extras, 1500, 3], [policy["extras"], policy["timeout"], attempts]
      assert_equal({ "exponential" => { "first" => 10_000, "cap" => 3_600_000 } }, policy["backoff"])
      assert_equal({ "in" => 86_400_000 }, policy["expiry"])
      assert_equal "acme", tenant
    end
    assert_operator jobs.size, :>=, 1
    error = assert_raises(Windlass::ArgumentError) { Class.new(Windlass::Job) { enqueues_with color: 1 } }
    assert_includes error.message, "color"
  end

  def test_a_class_says_rates
    Rated.perform_later(account: 7)
    ActiveJob.perform_all_later([Rated.new(account: 7)]) if ActiveJob.respond_to?(:perform_all_later)
    assert_equal ["api/7\u001fRated"], jobs("gate").flatten.uniq
    assert_equal 2, JSON.parse(jobs("rates").first.first).size
  end

  def test_a_refusal_of_the_database_is_an_error
    Refused.perform_later(a: 1)
    error = assert_raises(Windlass::EnqueueError) { Refused.perform_later(a: 1) }
    assert_match(/\Acannot enqueue .*unique/, error.message)
    assert_kind_of ActiveRecord::StatementInvalid, error.cause
    error = assert_raises(Windlass::EnqueueError) { Welcome.set(queue: "no spaces").perform_later(a: 1) }
    assert_match(/its queue must have/, error.message)
    assert_raises(Windlass::EnqueueError) { Welcome.set(priority: 2**31).perform_later(a: 1) }
    error = assert_raises(Windlass::EnqueueError) { Welcome.perform_later(a: "x" * 70_000) }
    assert_match(/65536 bytes/, error.message)
    assert_equal 1, jobs.size
  end

  def test_an_error_that_is_no_refusal_stays_as_it_is
    CONNECTION.transaction do
      CONNECTION.execute("DROP TABLE windlass_settings")
      assert_raises(ActiveRecord::StatementInvalid) { Welcome.perform_later(a: 1) }
      raise ActiveRecord::Rollback
    end
  end

  def test_the_query_cache_answers_no_enqueue
    CONNECTION.cache do
      before = jobs.size
      ids = Array.new(2) { Welcome.perform_later(email: "same").provider_job_id }
      assert_equal [2, 2], [ids.uniq.size, jobs.size - before]
    end
  end

  def test_many_jobs_are_enqueued_at_once
    many = [Welcome.new(email: "a"), Welcome.new(email: "b").tap { |job| job.priority = 4 }, Limited.new(account: 1)]
    assert_equal 3, Welcome.queue_adapter.enqueue_all(many)
    assert_equal [["Welcome", 0], ["Welcome", 4], ["notes::limited", 0]], jobs("class_name, priority")
    assert_equal(IS_POSTGRES ? jobs.flatten : [nil] * 3, many.map(&:provider_job_id))
    bad = [Welcome.new(email: "c"), Refused.new(a: 1), Refused.new(a: 2)]
    assert_raises(Windlass::EnqueueError) { Welcome.queue_adapter.enqueue_all(bad) }
    assert_raises(Windlass::ArgumentError) { Welcome.queue_adapter.enqueue_all([Welcome.new(email: "c"), Welcome.new(1)]) }
    assert_equal 3, jobs.size
  end

  def test_values_become_plain_json
    Welcome.perform_later(s: :symbol, w: Widget.new(1), d: 2.minutes, n: BigDecimal("0.10"), latin: "\xE4".dup.force_encoding("ISO-8859-1"),
                          t: Time.utc(2026, 1, 2, 3, 4, 5), f: 1e20, quote: "it's \\ \"x\" \u2028")
    expected = { "s" => "symbol", "w" => "gid://app/Widget/1", "d" => 120, "n" => "0.1", "latin" => "ä",
                 "t" => "2026-01-02T03:04:05.000000000Z", "f" => 1e20, "quote" => "it's \\ \"x\" \u2028" }
    assert_equal expected, JSON.parse(jobs("arguments").first.first)
  end

  def test_what_rust_cannot_read_is_refused_with_its_place
    cycle = []
    cycle << cycle
    { { email: { cc: [1, 1..2] } } => /`email.cc\[1\]` is a Range/, { a: Object.new } => /`a` is a Object/,
      { a: 2**64 } => /`a` is 18446744073709551616, which needs more than 64 bits/, { a: -2**63 - 1 } => /64 bits/,
      { a: Float::NAN } => /`a` is NaN/, { a: [Float::INFINITY] } => /`a\[0\]` is Infinity/, { a: BigDecimal("NaN") } => /no number/,
      { a: "\xFF" } => /UTF-8/, { a: "\xFF".b } => /UTF-8/, { a: "a\0b" } => /NUL/, { a: { 1 => 2 } } => /`a` has the key 1/,
      { a: { "b" => 1, b: 2 } } => /`a.b` is there twice/, { a: { _aj_globalid: "x" } } => /`a._aj_globalid`/,
      { a: Widget.new(nil) } => /`a` is a Widget without an id/, { a: Class.new } => /without a name/, { a: cycle } => /nested deeper/ }
      .each { |fields, message| assert_match message, refusal(**fields) }
    assert_empty jobs
  end

  def test_positional_arguments_are_refused
    [["a"], [{ a: 1 }, "b"], [["a", 1]]].each do |arguments|
      error = assert_raises(Windlass::ArgumentError) { Welcome.perform_later(*arguments) }
      assert_match(/takes keywords/, error.message)
    end
    assert_empty jobs
  end

  def test_other_adapters_refuse_the_same
    job = Class.new(Windlass::Job) { self.queue_adapter = :test }
    assert_raises(Windlass::ArgumentError) { job.perform_later(1) }
  end

  def test_ruby_does_not_perform
    error = assert_raises(NotImplementedError) { Welcome.perform_now(email: "a") }
    assert_match(/Welcome is performed by a worker in Rust/, error.message)
  end

  def test_what_has_no_effect_is_refused
    assert_raises(Windlass::ArgumentError) { Class.new(Windlass::Job) { retry_on StandardError } }
    assert_raises(Windlass::ArgumentError) { Class.new(Windlass::Job) { limits_concurrency to: 1, key: :a } }
    plain = Class.new(ActiveJob::Base) { self.queue_adapter = :windlass }
    assert_raises(Windlass::ArgumentError) { plain.perform_later }
  end

  def test_an_event_belongs_to_the_transaction_of_the_caller
    ActiveRecord::Base.transaction do
      Windlass.emit("paid/7", cents: 700)
      raise ActiveRecord::Rollback
    end
    2.times { Windlass.emit("paid/7", cents: 990) }
    Windlass.emit(:closed)
    events = CONNECTION.select_rows("SELECT name, payload FROM windlass_events ORDER BY name")
    assert_equal([["closed", "null"], ["paid/7", '{"cents":990}']], events)
    [["paid/7", 1, "another payload"], ["", 1, "its name must have 1 to 255 bytes"]].each do |name, payload, says|
      assert_match(says, assert_raises(Windlass::EnqueueError) { Windlass.emit(name, payload) }.message)
    end
    assert_raises(Windlass::ArgumentError) { Windlass.emit("a", Float::NAN) }
  end

  def test_the_connection_class_can_be_chosen
    Windlass.connection_class = Class.new { def self.connection = raise("asked") }
    assert_equal "asked", assert_raises(RuntimeError) { Welcome.perform_later(a: 1) }.message
  ensure
    Windlass.connection_class = nil
  end

  def test_a_complete_schema_is_left_alone
    assert_empty Windlass::Schema.migrate(CONNECTION)
  end
end
