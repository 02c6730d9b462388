# frozen_string_literal: true

module Windlass
  # The base class of jobs that are enqueued in Ruby and performed in Rust.
  class Job < ActiveJob::Base
    self.queue_adapter = ActiveJob::QueueAdapters::WindlassAdapter.new
    self.enqueue_after_transaction_commit = false if respond_to?(:enqueue_after_transaction_commit=)

    class_attribute :windlass_name, :windlass_limit, :windlass_unique, :windlass_at_most_once, :windlass_options,
                    instance_accessor: false

    # The columns that are JSON.
    JSON_COLUMNS = %w[arguments tags meta rates].freeze

    # What `enqueues_with` takes. Times are in seconds, or durations.
    SECONDS = %i[timeout backoff backoff_cap expires_in retry_for keep_result].freeze
    OPTIONS = (SECONDS + %i[tags meta version tenant max_attempts max_crashes batch_id after_batch runs_on rates]).freeze

    # Also where another adapter takes the jobs, as that of a test.
    before_enqueue { windlass_columns }

    class << self
      # Names the type in Rust. Without it, it has the name of the class.
      def rust_class(name) = self.windlass_name = name

      # Limits how many jobs with the same key run at once. No key, no limit.
      def limits_runs(key:, to: 1, group: nil, on_conflict: :block)
        self.windlass_limit = { key: key, to: to, group: group, on_conflict: on_conflict }
      end

      # Lets one job with this id wait or run. No id, no rule.
      def unique_by(id, scope: :until_finished, on_conflict: :existing)
        self.windlass_unique = { id: id, scope: scope, on_conflict: on_conflict }
      end

      # Sets what else the jobs are enqueued with. A block is called with the keywords, and nil says nothing.
      #
      #   enqueues_with tags: ->(customer:, **) { ["customer/#{customer}"] }, timeout: 30.seconds
      def enqueues_with(**options)
        unknown = options.keys - OPTIONS
        raise ArgumentError, "enqueues_with knows no #{unknown.first}, but #{OPTIONS.join(", ")}" if unknown.any?

        self.windlass_options = (windlass_options || {}).merge(options)
      end

      # Fails a job whose worker died, where others run again.
      def at_most_once = self.windlass_at_most_once = true

      { limits_concurrency: "write limits_runs", retry_on: "see `Job::policy`",
        discard_on: "see `JobError::discard`" }.each do |name, advice|
        define_method(name) do |*, **|
          raise ArgumentError, "#{name} has no effect on a job that is performed in Rust: #{advice}"
        end
      end
    end

    def perform(*, **)
      raise NotImplementedError, "#{self.class.name} is performed by a worker in Rust: enqueue it by perform_later"
    end

    # Returns the job as columns of the view `windlass_enqueue_v2`.
    def windlass_columns
      fields = Arguments.fields(arguments)
      columns = { "class" => self.class.windlass_name || self.class.name, "queue" => queue_name, "priority" => priority }
      columns["arguments"] = JSON.generate(Arguments.plain(fields), max_nesting: 0) if fields
      columns["run_at"] = Time.at(scheduled_at.to_r).round(6).utc.iso8601(6) if scheduled_at
      columns["at_most_once"] = true if self.class.windlass_at_most_once
      columns.merge!(windlass_unique_columns(fields), windlass_limit_columns(fields), windlass_more_columns(fields))
      columns.compact
    end

    private

    def windlass_unique_columns(fields)
      return {} unless (unique = self.class.windlass_unique) && (id = windlass_key(unique[:id], fields, "unique id"))

      { "unique_id" => id, "unique_scope" => unique[:scope].to_s, "on_conflict" => unique[:on_conflict].to_s }
    end

    def windlass_limit_columns(fields)
      return {} unless (limit = self.class.windlass_limit) && (key = windlass_key(limit[:key], fields, "limit's key"))

      { "concurrency_key" => key, "concurrency_group" => limit[:group]&.to_s, "concurrency_limit" => limit[:to],
        "concurrency_on_conflict" => limit[:on_conflict].to_s }
    end

    def windlass_more_columns(fields)
      keywords = (fields || {}).symbolize_keys
      (self.class.windlass_options || {}).to_h do |name, value|
        value = instance_exec(**keywords, &value) if value.is_a?(Proc)
        next [name.to_s, value] if value.nil?
        next ["#{name}_seconds", value.to_f] if SECONDS.include?(name)

        value = Arguments.plain(value.is_a?(Symbol) ? value.to_s : value, name.to_s)
        [name.to_s, JSON_COLUMNS.include?(name.to_s) ? JSON.generate(value) : value]
      end
    end

    # Returns a text; `key` is one, a block that takes the keywords, or the name of a method that does.
    def windlass_key(key, fields, what)
      keywords = (fields || {}).symbolize_keys
      key = send(key, **keywords) if key.is_a?(Symbol)
      key = instance_exec(**keywords, &key) if key.is_a?(Proc)
      key.nil? ? nil : Arguments.plain(key, what).to_s
    end
  end
end
