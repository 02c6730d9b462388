# frozen_string_literal: true

require "active_job"
require "active_support/core_ext/integer/time" # durations
require "active_support/core_ext/module/attribute_accessors"
require "bigdecimal"
require "json"
require "time"

# Enqueues jobs that workers in Rust perform.
module Windlass
  # A job that cannot be said in the arguments or options of a job in Rust.
  class ArgumentError < ::ArgumentError; end

  # The database has refused a job; its own error is the `cause`.
  class EnqueueError < StandardError; end

  # The database lacks something that the gem does not change.
  class SchemaError < StandardError; end

  # The Active Record class whose connection jobs are enqueued by.
  mattr_writer :connection_class

  def self.connection_class
    @@connection_class || (defined?(::SolidQueue::Record) ? ::SolidQueue::Record : ::ActiveRecord::Base)
  end

  def self.postgres?(connection) = connection.adapter_name.match?(/postg/i)
end

require "windlass/arguments"
require "windlass/adapter"
require "windlass/job"
require "windlass/schema"
require "windlass/railtie" if defined?(Rails::Railtie)
