# frozen_string_literal: true

require "active_job"
require "active_support/core_ext/integer/time" # durations
require "active_support/core_ext/module/attribute_accessors"
require "bigdecimal"
require "json"
require "time"

# Enqueues jobs that workers in Rust perform, and emits events for which they wait.
module Windlass
  # A job or an event that cannot be said in Rust.
  class ArgumentError < ::ArgumentError; end

  # The database has refused a job or an event; its own error is the `cause`.
  class EnqueueError < StandardError; end

  # The database lacks something that the gem does not change.
  class SchemaError < StandardError; end

  # The Active Record class whose connection jobs are enqueued by.
  mattr_writer :connection_class

  def self.connection_class
    @@connection_class || (defined?(::SolidQueue::Record) ? ::SolidQueue::Record : ::ActiveRecord::Base)
  end

  def self.postgres?(connection) = connection.adapter_name.match?(/postg/i)

  # Emits an event in the transaction of the caller: jobs that wait for it run again, with its payload.
  def self.emit(name, payload = nil)
    json = JSON.generate(Arguments.plain(payload), max_nesting: 0)
    ActiveJob::QueueAdapters::WindlassAdapter.new.emit(name.to_s, json)
  end
end

require "windlass/arguments"
require "windlass/adapter"
require "windlass/job"
require "windlass/schema"
require "windlass/railtie" if defined?(Rails::Railtie)
