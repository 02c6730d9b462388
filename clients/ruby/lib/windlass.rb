# Enqueues jobs that Windlass performs, in the caller's own transaction.
module Windlass
  # The job is refused, and nothing is enqueued. The message is the database's, or says which value is wrong.
  class EnqueueError < StandardError; end

  class << self
    # The class of Active Record whose database has the tables of Windlass: SolidQueue::Record, if there is one.
    attr_writer :connection_class

    def connection_class
      @connection_class || (defined?(SolidQueue::Record) ? SolidQueue::Record : ActiveRecord::Base)
    end
  end
end

require "active_job"
require "active_record"
require_relative "windlass/arguments"
require_relative "windlass/adapter"
require_relative "windlass/job"
require_relative "windlass/schema"
require_relative "windlass/railtie" if defined?(Rails::Railtie)
